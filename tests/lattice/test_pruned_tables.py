"""Pruned tables: what is dropped is what the options say, and nothing that can still be looked up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import OptionError
from longstride.systems.lattice.counts import CountOptions
from longstride.systems.lattice.layout import tables_of
from tests.lattice.test_counts import EXAMPLE, NONE, Triple, by_hand, counted, row_of, triples


@settings(max_examples=60, deadline=None)
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
def test_rows_equal_pruning_by_hand(corpus: list[Triple], options: CountOptions) -> None:
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


def test_the_option_is_checked() -> None:
    with pytest.raises(OptionError, match="fewest expects a whole number from 1 to 1000000000, found 0"):
        CountOptions(fewest=0)
