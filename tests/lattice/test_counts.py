"""Counts against counting by hand, and what is cut off and fallen back on when they become tables."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import OptionError
from longstride.search.lengths import LengthRegression
from longstride.systems.lattice import counts as counting
from longstride.systems.lattice.counts import Counts, Tally, count, tables_of
from longstride.systems.lattice.tables import CountOptions, Tables
from longstride.text.binarized import BinarizedCorpus

VOCABULARY = 12
NONE = 0
"""PAD, which stands for no source word."""

Triple = tuple[list[int], list[int], list[int]]
"""Source words, target words, and where each target word comes from (-1: from none)."""


@st.composite
def triples(draw: st.DrawFn) -> Triple:
    word = st.integers(5, VOCABULARY - 1)
    source = draw(st.lists(word, min_size=1, max_size=5))
    target = draw(st.lists(word, min_size=0, max_size=6))
    return source, target, [draw(st.integers(-1, len(source) - 1)) for _ in target]


def counted(corpus: list[Triple], options: CountOptions) -> Counts:
    made = BinarizedCorpus.from_pairs([(source, target) for source, target, _ in corpus])
    links = np.array([link for _, _, own in corpus for link in own], np.int32)
    return count(made, links, VOCABULARY, VOCABULARY, options)


def by_hand(
    corpus: list[Triple], reach: int
) -> tuple[Counter[tuple[int, int | None, int]], Counter[tuple[int, int, int]]]:
    """How often (source word, distance or None for any, target word), and how often (S, t, a)."""
    links: Counter[tuple[int, int | None, int]] = Counter()
    places: Counter[tuple[int, int, int]] = Counter()
    for source, target, own in corpus:
        for t, (y, a) in enumerate(zip(target, own, strict=True)):
            places[len(source), t, a] += 1
            if a < 0:
                links[NONE, None, y] += 1
            else:
                links[source[a], max(-reach, min(reach, a - t)), y] += 1
                links[source[a], None, y] += 1
    return links, places


def unfolded(made: Counts, options: CountOptions) -> Counter[tuple[int, int | None, int]]:
    found: Counter[tuple[int, int | None, int]] = Counter()
    for key, occurred in zip(*(values.tolist() for values in made.links), strict=True):
        row, y = divmod(key, VOCABULARY)
        x, slot = divmod(row, options.slots)
        found[x, slot - options.reach - 1 if slot else None, y] = occurred
    return found


@settings(max_examples=60)
@given(st.lists(triples(), min_size=1, max_size=8), st.integers(0, 3), st.integers(1, 4))
def test_counts_equal_counting_by_hand(corpus: list[Triple], reach: int, chunk: int) -> None:
    options = CountOptions(reach=reach)
    whole = counting.CHUNK
    counting.CHUNK = chunk
    try:
        made = counted(corpus, options)
    finally:
        counting.CHUNK = whole
    links, places = by_hand(corpus, reach)
    assert unfolded(made, options) == links
    found = {(s, t, a - 1): int(made.places[s, t, a]) for s, t, a in zip(*np.nonzero(made.places), strict=True)}
    assert found == dict(places)
    assert int(made.drift.sum()) == sum(places.values())


@settings(max_examples=30)
@given(st.lists(triples(), min_size=1, max_size=8), st.integers(1, 4))
def test_positions_are_counted_up_to_a_length_and_words_at_all(corpus: list[Triple], longest: int) -> None:
    options = CountOptions(reach=2, longest=longest)
    made = counted(corpus, options)
    whole = counted(corpus, CountOptions(reach=2))
    sizes = made.places.shape
    assert max(sizes[0] - 1, sizes[1]) <= longest
    assert np.array_equal(made.places, whole.places[: sizes[0], : sizes[1], : sizes[2]])
    assert unfolded(made, options) == unfolded(whole, options)
    assert made.drift.tolist() == whole.drift.tolist()


@settings(max_examples=40)
@given(st.lists(triples(), min_size=1, max_size=8), st.integers(0, 3))
def test_probabilities_sum_to_one_before_anything_is_cut(corpus: list[Triple], reach: int) -> None:
    options = CountOptions(reach=reach, keep=VOCABULARY)
    tables = tables_of(counted(corpus, options), options, "hash")
    for row in range(VOCABULARY * options.slots):
        first, size, total = (int(getattr(tables, name)[row]) for name in ("first", "size", "total"))
        if total:
            assert int(tables.counts[first : first + size].sum()) == total
        else:
            assert size == 0


def row_of(tables: Tables, x: int, distance: int | None) -> tuple[list[int], list[int], int]:
    """The words, their counts and the total of a key."""
    options = tables.options.counted
    row = x * options.slots + (0 if distance is None else distance + options.reach + 1)
    first, size = int(tables.first[row]), int(tables.size[row])
    span = slice(first, first + size)
    return tables.words[span].tolist(), tables.counts[span].tolist(), int(tables.total[row])


EXAMPLE: list[Triple] = [
    ([5, 6], [7, 8, 9], [0, 0, 1]),
    ([5, 6], [7, 8], [0, 1]),
    ([5], [9, 10], [0, -1]),
]


def test_the_most_frequent_words_stay_and_the_total_counts_all() -> None:
    options = CountOptions(keep=1, reach=2)
    tables = tables_of(counted(EXAMPLE, options), options, "hash")
    assert row_of(tables, 5, 0) == ([7], [2], 3)  # 7 twice, 9 once
    assert row_of(tables, 5, None) == ([7], [2], 4)  # 8 once, one place back
    assert row_of(tables, NONE, None) == ([10], [1], 1)


def test_an_unseen_distance_falls_back_on_any_distance() -> None:
    options = CountOptions(reach=2)
    tables = tables_of(counted(EXAMPLE, options), options, "hash")
    assert row_of(tables, 6, 0) == ([8], [1], 1)
    assert row_of(tables, 6, 2) == row_of(tables, 6, None) == ([8, 9], [1, 1], 2)


def test_a_distance_seen_too_seldom_falls_back_as_well() -> None:
    options = CountOptions(reach=2, least=2)
    tables = tables_of(counted(EXAMPLE, options), options, "hash")
    assert row_of(tables, 6, 0) == row_of(tables, 6, None)
    assert row_of(tables, 5, 0) == ([7, 9], [2, 1], 3)


def test_an_unseen_word_stands_for_itself_in_a_shared_vocabulary_alone() -> None:
    options = CountOptions(reach=2)
    made = counted(EXAMPLE, options)
    assert row_of(tables_of(made, options, "hash"), 11, 1) == ([11], [1], 1)
    assert row_of(tables_of(made, options, "hash", "another"), 11, 1) == ([], [], 0)
    assert row_of(tables_of(made, options, "hash"), 4, 1) == ([], [], 0)  # reserved symbols are no words


def test_an_unseen_place_takes_the_counts_of_all_lengths() -> None:
    options = CountOptions(reach=2)
    made = counted(EXAMPLE, options)
    tables = tables_of(made, options, "hash")
    assert tables.places[2, 0].tolist() == [0, 2, 0]  # seen: kept as it was counted
    assert int(made.places[1, 2].sum()) == 0
    assert int(tables.places[1, 2].sum()) > 0
    assert tables.places[1, 2, 2] == 0  # there is no second word in a source of one


@settings(max_examples=60)
@given(
    st.lists(triples(), min_size=1, max_size=8),
    st.builds(
        CountOptions,
        keep=st.integers(1, 5),
        reach=st.integers(0, 3),
        least=st.integers(1, 3),
        fewest=st.integers(1, 3),
    ),
)
def test_pruned_rows_equal_pruning_by_hand(corpus: list[Triple], options: CountOptions) -> None:
    links, _ = by_hand(corpus, options.reach)
    tables = tables_of(counted(corpus, options), options, "hash", "another")  # words never seen stand for nothing
    rows: dict[tuple[int, int | None], dict[int, int]] = {}
    for (x, distance, y), occurred in links.items():
        rows.setdefault((x, distance), {})[y] = occurred
    reachable = 0
    for (x, distance), words in rows.items():
        own = sum(words.values()) >= options.least or distance is None
        ranked = sorted(words.items(), key=lambda item: (-item[1], item[0]))
        kept = [item for place, item in enumerate(ranked) if place == 0 or item[1] >= options.fewest][: options.keep]
        expected = ([y for y, _ in kept], [occurred for _, occurred in kept], sum(words.values()))
        assert row_of(tables, x, distance) == (expected if own else row_of(tables, x, None))
        reachable += len(kept) if own else 0
    assert tables.options.entries == reachable


def test_the_best_word_stays_however_seldom_it_is() -> None:
    options = CountOptions(reach=2, fewest=2)
    tables = tables_of(counted(EXAMPLE, options), options, "hash")
    assert row_of(tables, 5, 0) == ([7], [2], 3)  # 9 came once
    assert row_of(tables, NONE, None) == ([10], [1], 1)


def test_tables_are_all_integers_and_survive_half_precision() -> None:
    options = CountOptions(reach=2)
    tables = tables_of(counted(EXAMPLE, options), options, "hash")
    before = {name: buffer.clone() for name, buffer in tables.named_buffers()}
    after = dict(tables.to(torch.float16).named_buffers())
    assert all(after[name].dtype == value.dtype and after[name].equal(value) for name, value in before.items())


def test_merging_counts_in_pieces() -> None:
    tally = Tally()
    assert [values.tolist() for values in tally.result()] == [[], []]
    for keys in ([3, 1, 3], [2], [1, 1, 9], [3]):
        tally.add(np.array(keys, np.int64))
    assert [values.tolist() for values in tally.result()] == [[1, 2, 3, 9], [3, 1, 3, 1]]
    tally.add(np.array([9, 9]), np.array([4, 5]))
    assert tally.result()[1].tolist() == [3, 1, 3, 10]


def test_length_regression() -> None:
    source, target = np.array([1, 2, 3, 4]), np.array([3, 5, 7, 9])
    made = LengthRegression.fit(source, target)
    assert (made.slope, made.intercept) == pytest.approx((2.0, 1.0))
    assert made.predict(torch.tensor([2, 5])).tolist() == [4, 10]  # EOS is counted on both sides
    level = LengthRegression.fit(np.array([4, 4]), np.array([6, 2]))
    assert (level.slope, level.intercept) == (1.0, 0.0)
    assert LengthRegression(0.1, -5.0).predict(torch.tensor([1])).tolist() == [2]  # one word at least


@pytest.mark.parametrize(
    "wrong", [{"keep": 0}, {"keep": 256}, {"reach": -1}, {"longest": 0}, {"least": 0}, {"fewest": 0}]
)
def test_options_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(OptionError, match=next(iter(wrong))):
        CountOptions(**wrong)
