"""Candidates looked up at once equal candidates summed up one by one, in every construction."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride.contract import EOS, MASK, PAD, START, OptionError
from longstride.contract.options import as_dict, parse
from longstride.systems.lattice.candidates import Candidates, from_logits, pruned
from longstride.systems.lattice.counts import count, tables_of
from longstride.systems.lattice.inspection import recall
from longstride.systems.lattice.tables import CountOptions, SharedVocabulary, Tables, TablesOptions, best_sums
from longstride.text.binarized import BinarizedCorpus
from tests.lattice.test_counts import EXAMPLE, NONE, VOCABULARY, Triple, counted, row_of, triples


def made(corpus: list[Triple], options: CountOptions) -> Tables:
    return tables_of(counted(corpus, options), options, "hash")


def padded(sentences: list[list[int]]) -> tuple[Tensor, Tensor]:
    rows = [[*sentence, EOS] for sentence in sentences]
    widest = max(len(row) for row in rows)
    return torch.tensor([row + [PAD] * (widest - len(row)) for row in rows]), torch.tensor([len(row) for row in rows])


def places_slowly(tables: Tables, size: int, t: int) -> list[float]:
    """P(none | S, t), P(0 | S, t), ..., read off the table, or off the counts of all lengths where it ends."""
    o = tables.options
    if size <= o.longest_source and t < o.longest_target:
        counts = [int(tables.places[size, t, a]) for a in range(size + 1)]
    else:
        expected = math.floor((t + 0.5) * size / max(size * o.length.slope + o.length.intercept, 1.0))
        reach = o.counted.reach
        slots = [max(-reach, min(reach, a - expected)) + reach + 1 for a in range(size)]
        counts = [int(tables.drift[slot]) for slot in [0, *slots]]
    return [occurred / max(sum(counts), 1) for occurred in counts]


def sums_slowly(keys: list[tuple[int, int | None]], weights: list[float], tables: Tables) -> dict[int, float]:
    sums: dict[int, float] = {}
    for (x, distance), weight in zip(keys, weights, strict=True):
        words, counts, total = row_of(tables, x, distance)
        for word, occurred in zip(words, counts, strict=True):
            if weight:
                sums[word] = sums.get(word, 0.0) + weight * occurred / total
    return sums


def place_slowly(tables: Tables, source: list[int], t: int) -> dict[int, float]:
    """P(y | x, t) of every word, alignment by alignment."""
    reach = tables.options.counted.reach
    distances = [(x, max(-reach, min(reach, a - t))) for a, x in enumerate(source)]
    return sums_slowly([(NONE, None), *distances], places_slowly(tables, len(source), t), tables)


def sentence_slowly(tables: Tables, source: list[int]) -> dict[int, float]:
    return sums_slowly([(x, None) for x in source], [1 / max(len(source), 1)] * len(source), tables)


def check(found: Candidates, row: int, column: int, expected: dict[int, float], k: int) -> None:
    """Best first, nothing twice, nothing better left out; equal scores are told apart by id."""
    ids, scores = found.ids[row, column].tolist(), found.log_scores[row, column].exp().tolist()
    size = min(k, len(expected))
    assert len(ids) == k
    assert ids[size:] == [PAD] * (k - size)
    assert scores[size:] == [0.0] * (k - size)
    assert len(set(ids[:size])) == size
    assert scores[:size] == pytest.approx([expected[word] for word in ids[:size]], rel=1e-5, abs=1e-9)
    best = sorted(expected.values(), reverse=True)[:size]
    assert scores[:size] == pytest.approx(best, rel=1e-5, abs=1e-9)


cases = given(
    st.lists(triples(), min_size=1, max_size=8),
    st.lists(st.lists(st.integers(5, VOCABULARY - 1), max_size=7), min_size=1, max_size=3),
    st.builds(CountOptions, keep=st.integers(1, 5), reach=st.integers(0, 3), least=st.integers(1, 3)),
    st.integers(1, 8),
    st.integers(1, 9),
)


@settings(max_examples=100)
@cases
def test_tables_equal_their_slow_twin(
    corpus: list[Triple], sentences: list[list[int]], options: CountOptions, columns: int, k: int
) -> None:
    tables = made(corpus, options)
    found = tables.candidates(*padded(sentences), columns, k)
    assert found.ids.shape == found.log_scores.shape == (len(sentences), columns, k)
    for row, sentence in enumerate(sentences):
        for column in range(columns):
            check(found, row, column, place_slowly(tables, sentence, column), k)


@settings(max_examples=50)
@cases
def test_the_shared_vocabulary_equals_its_slow_twin(
    corpus: list[Triple], sentences: list[list[int]], options: CountOptions, columns: int, k: int
) -> None:
    tables = made(corpus, options)
    found = SharedVocabulary(tables).candidates(*padded(sentences), columns, k)
    assert found.ids.shape == found.log_scores.shape == (len(sentences), columns, k)
    for row, sentence in enumerate(sentences):
        for column in range(columns):
            check(found, row, column, sentence_slowly(tables, sentence), k)


@settings(max_examples=30)
@cases
def test_a_batch_equals_sentence_by_sentence_and_k_cuts_the_same_list(
    corpus: list[Triple], sentences: list[list[int]], options: CountOptions, columns: int, k: int
) -> None:
    tables = made(corpus, options)
    together = tables.candidates(*padded(sentences), columns, k + 2)
    for row, sentence in enumerate(sentences):
        alone = tables.candidates(*padded([sentence]), columns, k)
        assert torch.equal(alone.ids[0], together.ids[row, :, :k])
        assert torch.equal(alone.log_scores[0], together.log_scores[row, :, :k])


def test_by_hand() -> None:
    tables = made(EXAMPLE, CountOptions(reach=2))
    found = tables.candidates(*padded([[5, 6]]), 2, 4)
    # Column 0 comes from word 0 whenever S = 2; there 5 at distance 0 became 7 twice and 9 once.
    assert found.ids[0, 0].tolist() == [7, 9, PAD, PAD]
    assert found.log_scores[0, 0].exp().tolist() == pytest.approx([2 / 3, 1 / 3, 0, 0])
    # Column 1 came from word 0 (5 one back became 8) and from word 1 (6 at distance 0 became 8), equally often.
    assert found.ids[0, 1].tolist() == [8, PAD, PAD, PAD]
    assert found.log_scores[0, 1, 0] == pytest.approx(0.0)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 50)), min_size=1, max_size=20), st.integers(1, 8))
def test_equal_words_are_added_up_and_ties_go_to_the_lower_id(entries: list[tuple[int, int]], k: int) -> None:
    sums: dict[int, int] = {}
    for word, amount in entries:
        sums[word] = sums.get(word, 0) + amount
    ranked = sorted((word for word in sums if sums[word]), key=lambda word: (-sums[word], word))[:k]
    words, amounts = (torch.tensor(column).view(1, 1, -1) for column in zip(*entries, strict=True))
    assert best_sums(words, amounts, k, PAD).ids[0, 0].tolist() == ranked + [PAD] * (k - len(ranked))


def test_logits_propose_words_alone() -> None:
    logits = torch.randn(2, 3, 9, generator=torch.Generator().manual_seed(0))
    found = from_logits(logits, 12)
    assert not set(found.ids[..., :5].flatten().tolist()) & {PAD, START, EOS, MASK}
    assert found.ids[..., 5:].eq(PAD).all()
    assert found.log_scores[..., 5:].eq(-torch.inf).all()
    expected = logits.log_softmax(-1).gather(-1, found.ids[..., :5])
    assert torch.equal(found.log_scores[..., :5], expected)
    assert torch.equal(from_logits(logits, 2).ids, found.ids[..., :2])


@given(st.lists(st.tuples(st.integers(-9, 0), st.integers(-9, 9)), min_size=1, max_size=8), st.integers(1, 8))
def test_both_scores_decide_what_is_kept(scores: list[tuple[int, int]], k: int) -> None:
    there = len(scores) - 1  # the last place is empty
    ids = torch.tensor([[[*range(10, 10 + there), PAD]]])
    log_scores = torch.tensor([[[*(float(own) for own, _ in scores[:there]), -math.inf]]])
    found = pruned(Candidates(ids, log_scores), torch.tensor([[[float(logit) for _, logit in scores]]]), k, PAD)
    order = sorted(range(there), key=lambda place: -sum(scores[place]))
    words = [10 + place for place in order] + [PAD]
    assert found.ids[0, 0].tolist() == words[:k]
    assert found.rest is not None
    assert found.rest[0, 0].tolist() == words[k:]
    assert found.log_scores[0, 0].tolist() == [*(float(scores[place][0]) for place in order), -math.inf][:k]


def test_recall_counts_words_in_their_own_place() -> None:
    tables = made(EXAMPLE, CountOptions(reach=2))
    corpus = BinarizedCorpus.from_pairs([([5, 6], [7, 8]), ([5, 6], [9, 11])])
    assert recall(tables, corpus, [1, 2]) == {1: 0.5, 2: 0.75}


def test_recall_in_several_batches() -> None:
    tables = made(EXAMPLE, CountOptions(reach=2))
    one = ([5, 6], [7, 8, 9])
    alone, many = (recall(tables, BinarizedCorpus.from_pairs([one] * times), [1, 3]) for times in (1, 300))
    assert alone == many


def test_options_round_trip_and_their_sizes_fit_the_arrays() -> None:
    tables = made(EXAMPLE, CountOptions(reach=2))
    again = Tables(parse(TablesOptions, as_dict(tables.options)))
    assert again.options == tables.options
    again.load_state_dict(tables.state_dict())
    source = padded([[5, 6], [6]])
    assert torch.equal(again.candidates(*source, 3, 4).ids, tables.candidates(*source, 3, 4).ids)
    with pytest.raises(OptionError, match="vocabulary expects a whole number from 1 to"):
        TablesOptions(1 << 21, 5, "a", "a", 0, 1, 1)


def test_ids_beyond_sixteen_bits() -> None:
    options = CountOptions(reach=1)
    corpus = BinarizedCorpus.from_pairs([([7, 8], [60_000, 40_000])])
    tables = tables_of(count(corpus, np.array([0, 1], np.int32), 70_000, 70_000, options), options, "hash")
    assert tables.candidates(*padded([[7, 8]]), 2, 1).ids.flatten().tolist() == [60_000, 40_000]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_the_same_on_a_gpu() -> None:
    tables = made(EXAMPLE * 3, CountOptions(reach=2))
    source, lengths = padded([[5, 6, 7], [6]])
    here = tables.candidates(source, lengths, 5, 6)
    there = tables.cuda().candidates(source.cuda(), lengths.cuda(), 5, 6)
    assert torch.equal(here.ids, there.ids.cpu())
