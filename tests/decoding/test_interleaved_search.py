"""The multi-word beam's pieces against exhaustive search, and de-duplication against a loop over words."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.search.beam import Beam, BeamState, Search
from longstride.search.continuations import DEAD, Continuations, SlotScores, fold
from longstride.search.length_penalty import LengthPenalty
from longstride.search.repeats import without_repeats


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    step=st.integers(1, 4),
    width=st.integers(1, 4),
    vocabulary=st.integers(1, 5),
    shared=st.integers(1, 3),
)
def test_the_pruned_fold_equals_the_exhaustive_search(seed, step, width, vocabulary, shared):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(shared, step, vocabulary, generator=generator, dtype=torch.float64) * 2
    scores = logits.log_softmax(dim=-1)
    kept = min(width, vocabulary)
    words, ids = scores.topk(kept, dim=-1)

    nothing = torch.zeros(1, shared, 1, 0, dtype=torch.int64)
    partial = Continuations(torch.zeros(1, shared, 1, dtype=torch.float64), nothing)
    for slot in range(step):
        partial = fold(partial, ids[None, :, slot, None], words[None, :, slot, None], width)
    live, chosen = partial.scores[0], partial.words[0]

    for row in range(shared):
        every = [
            (sum(float(scores[row, slot, token]) for slot, token in enumerate(tokens)), list(tokens))
            for tokens in itertools.product(range(vocabulary), repeat=step)
        ]
        every.sort(key=lambda item: -item[0])
        expected = every[:width]
        assert live[row].tolist() == pytest.approx([score for score, _ in expected])
        assert chosen[row].tolist() == [tokens for _, tokens in expected]


@pytest.mark.parametrize("count_dropped", [False, True])
def test_search_goes_on_while_a_longer_output_may_win(count_dropped):
    """Ending at once is cheap, the second step dear, all after it free: per token, the longest output is the best."""
    table = BeamState.empty(1, 2, 17, torch.device("cpu"))
    table.open(torch.tensor([0]), torch.tensor([15]))
    beam = Beam(Search(2, 1, LengthPenalty("average", 1.0), 2, 0, count_dropped), 17, torch.device("cpu"))
    for number in range(8):
        word = (-0.1, -2.0)[number] if number < 2 else 0.0
        words = torch.tensor([word, -90.0], dtype=torch.float64).expand(1, 2, 2, 2)
        end = torch.full((1, 2, 2), -90.0, dtype=torch.float64)
        if number == 0:
            end[..., 0] = -0.7
        if number == 7:
            end[..., 1] = 0.0
        slots = SlotScores(torch.tensor([5, 6]).expand(1, 2, 2, 2), words, end)
        assert not table.done
        beam.advance(table, slots)
        assert (table.live > DEAD).sum() + (table.finished > DEAD).sum() <= 2  # places are shared
    assert table.done
    best = beam.scores(table).argmax()
    assert table.finished_length[0, best] == 15
    assert beam.scores(table).max() == pytest.approx(-4.2 / 16)


def slowly(tokens: list[int], longest: int) -> list[int]:
    for n in range(1, longest + 1):
        kept: list[int] = []
        at = 0
        while at < len(tokens):
            if len(kept) >= n and tokens[at : at + n] == kept[-n:]:
                at += n
            else:
                kept.append(tokens[at])
                at += 1
        tokens = kept
    return tokens


@settings(max_examples=300)
@given(rows=st.lists(st.lists(st.integers(5, 7), max_size=14), min_size=1, max_size=4), longest=st.integers(1, 5))
def test_repeats_are_taken_out_as_a_loop_would(rows, longest):
    lengths = torch.tensor([len(row) for row in rows])
    columns = int(lengths.max()) + 2
    tokens = torch.tensor([[*row, *[5] * (columns - len(row))] for row in rows])
    stay = without_repeats(tokens, lengths, longest)
    for row, words in enumerate(rows):
        assert tokens[row][stay[row]].tolist() == slowly(words, longest)


def test_repeats_as_people_would_say():
    text = "a b a b a b a"
    ids = torch.tensor([[5 if word == "a" else 6 for word in text.split()]])
    assert ids[0][without_repeats(ids, torch.tensor([7]), 2)[0]].tolist() == [5, 6, 5]
    assert without_repeats(ids, torch.tensor([7]), 1).all()
