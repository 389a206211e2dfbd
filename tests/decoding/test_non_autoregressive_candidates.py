"""The one-pass model as a source of candidates for lattices."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import DEFAULT_IDS, Source
from longstride.runtime.eager import EagerRunner
from longstride.search.lengths import LengthRegression
from longstride.systems.lattice import candidates
from longstride.systems.lattice.candidates import ScoredCandidates, not_words
from longstride.systems.lattice.decoder import LatticeDecoder
from longstride.systems.lattice.pipeline import LatticeOptions
from longstride.systems.non_autoregressive import filling
from longstride.systems.non_autoregressive.filling import place_scores
from tests.decoding.one_pass import slow_canvas, tiny_one_pass
from tests.lattice.models import tiny_scorer
from tests.models import random_source


@settings(max_examples=8)
@given(
    seed=st.integers(0, 1000),
    columns=st.integers(1, 14),
    spread=st.integers(0, 3),
    copy=st.sampled_from(["none", "uniform", "soft"]),
)
def test_a_place_mixes_the_canvases_that_reach_it_by_how_likely_they_are(seed, columns, spread, copy):
    model, source = tiny_one_pass(seed, copy=copy), random_source(3, 6, seed=seed)
    found = place_scores(model, source.ids, source.lengths, columns, spread)
    assert torch.allclose(found.exp().sum(-1), torch.ones(3, columns, dtype=torch.float64))
    predicted = model.options.length.predict(source.lengths).tolist()
    for row, length in enumerate(source.lengths.tolist()):
        ids = source.ids[row, :length].tolist()
        lengths = [one for one in range(predicted[row] - spread, predicted[row] + spread + 1) if one >= 2]
        canvases = {one: slow_canvas(model, ids, one, max(one, columns)).exp() for one in lengths}
        for t in range(columns):
            reaching = [one for one in lengths if t < one - 1] or lengths[-1:]
            line = model.options.length
            expected_words = max(1.0, line.slope * (length - 1) + line.intercept)
            chance = [math.exp(-(((one - 1 - expected_words) / 1.5) ** 2) / 2) for one in reaching]
            mixed = sum(p / sum(chance) * canvases[one][t] for p, one in zip(chance, reaching, strict=True))
            assert torch.allclose(found[row, t].exp(), torch.as_tensor(mixed))


def test_candidates_are_its_best_words_whatever_the_batch(monkeypatch):
    model, source = tiny_one_pass(3), random_source(4, 8)
    proposing = ScoredCandidates(partial(place_scores, model), 11, EagerRunner("cpu", "fp64"))
    together = proposing.candidates(source.ids, source.lengths, 9, 20)
    assert together.ids.shape == (4, 9, 20)
    assert not set(together.ids[together.log_scores > -torch.inf].tolist()) & set(not_words(DEFAULT_IDS))
    scores = place_scores(model, source.ids, source.lengths, 9)
    best = scores.index_fill(-1, torch.tensor(not_words(DEFAULT_IDS)), -torch.inf).argmax(-1)
    assert torch.equal(together.ids[..., 0], best)
    for row, length in enumerate(source.lengths.tolist()):
        alone = proposing.candidates(source.ids[row : row + 1, :length], source.lengths[row : row + 1], 9, 20)
        assert torch.equal(alone.ids[0], together.ids[row])
    monkeypatch.setattr(candidates, "MAX_SCORES", 1)
    monkeypatch.setattr(filling, "MAX_LOGITS_CPU", 1)
    monkeypatch.setattr(filling, "MAX_LOGITS", 1)
    assert torch.equal(proposing.candidates(source.ids, source.lengths, 9, 20).ids, together.ids)


@pytest.mark.parametrize("window", [0, 3])
def test_a_lattice_searches_among_them(window):
    model, source = tiny_one_pass(2), random_source(5, 7)
    runner = EagerRunner("cpu", "fp64")
    proposing = ScoredCandidates(partial(place_scores, model), 11, runner)
    options = LatticeOptions(candidates=2, length_window=window, construction="model")
    found = LatticeDecoder(tiny_scorer(4), proposing, model.options.length, runner, options).decode(source)
    for row, tokens in enumerate(found.tokens):
        sentence = Source(source.ids[row : row + 1], source.lengths[row : row + 1])
        words = proposing.candidates(sentence.ids, sentence.lengths, len(tokens), 2).ids[0]
        assert all(token in place for token, place in zip(tokens, words.tolist(), strict=True))


def test_the_spread_of_lengths_is_what_the_line_leaves_over():
    import numpy as np

    line = LengthRegression.fit(np.array([2, 2, 4, 4]), np.array([3, 5, 7, 9]))
    assert (line.slope, line.intercept, line.spread) == (pytest.approx(2.0), pytest.approx(0.0), pytest.approx(1.0))
    assert LengthRegression.fit(np.array([4, 4]), np.array([6, 2])).spread == pytest.approx(2.0)
    odds = line.log_odds(torch.tensor([4]), torch.tensor([[6, 7, 8, 9]]))  # three words: six expected, EOS besides
    assert odds.tolist() == [pytest.approx([-0.5, 0.0, -0.5, -2.0])]
    assert LengthRegression().log_odds(torch.tensor([4]), torch.tensor([[2, 9]])).tolist() == [[0.0, 0.0]]
