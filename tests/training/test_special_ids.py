"""Vocabularies with other special ids: the same words have the same loss and likelihood, whatever fills rows up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from longstride.contract import DEFAULT_IDS, Batch, OptionError, SpecialIds
from longstride.nn.losses import Smoothing
from longstride.nn.transformer import Transformer
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.objective import AutoregressiveObjective
from longstride.systems.autoregressive.objective import likelihood as autoregressive_likelihood
from longstride.systems.blockwise.model import BlockwiseModel, Heads, HeadsOptions
from longstride.systems.blockwise.objective import BlockwiseObjective, BlockwiseObjectiveOptions
from longstride.systems.interleaved.model import InterleavedModel, Interleaving
from longstride.systems.interleaved.objective import InterleavedObjective
from longstride.systems.interleaved.objective import likelihood as interleaved_likelihood
from longstride.systems.lattice.model import LatticeModel, Scorer
from longstride.systems.lattice.objective import LatticeObjective, LatticeObjectiveOptions
from longstride.systems.non_autoregressive.model import OnePass
from longstride.systems.non_autoregressive.objective import NonAutoregressiveObjective
from longstride.text.batches import BatchOptions, TokenBatches
from longstride.text.binarized import BinarizedCorpus
from tests.decoding.interleaved import tiny_interleaved
from tests.decoding.one_pass import tiny_one_pass
from tests.decoding.test_special_ids import VOCABULARY, renumbered, specials
from tests.lattice.models import tiny_scorer
from tests.models import tiny_model

RUNNER = EagerRunner(precision="fp64")


def a_batch(seed: int, names: torch.Tensor, special: SpecialIds) -> Batch:
    """Random sentences of the words 5 to 10, by these names, as they come out of a corpus."""
    generator = torch.Generator().manual_seed(seed)

    def sentence() -> list[int]:
        length = int(torch.randint(0, 7, (), generator=generator))
        return names[torch.randint(5, VOCABULARY, (length,), generator=generator)].tolist()

    corpus = BinarizedCorpus.from_pairs([(sentence(), sentence()) for _ in range(5)], special)
    return next(TokenBatches(corpus, BatchOptions(shuffle=False, source_pure=False)).epoch(0))


def models(seed: int) -> dict[str, tuple[Any, Any]]:
    """Systems, with their objectives and what is trained."""
    heads = (
        Heads(HeadsOptions(width=16, k=3, feed_forward=8, link=2, vocabulary=VOCABULARY, dropout=0.0))
        .double()
        .requires_grad_(False)
    )
    torch.manual_seed(seed)
    for weight in heads.parameters():
        weight.normal_(0, 0.5)
    return {
        "autoregressive": (AutoregressiveObjective(Smoothing()), tiny_model(seed)),
        "blockwise": (
            BlockwiseObjective(BlockwiseObjectiveOptions(sub_loss="mean")),
            BlockwiseModel(tiny_model(seed), heads),
        ),
        "interleaved": (InterleavedObjective(Smoothing()), tiny_interleaved(seed, {"h": 2, "c": 1})),
        "linked": (
            InterleavedObjective(Smoothing()),
            tiny_interleaved(seed, {"h": 2, "c": 2, "link": 3}),
        ),
        "one-pass": (NonAutoregressiveObjective(Smoothing()), tiny_one_pass(seed)),
        "lattice": (LatticeObjective(LatticeObjectiveOptions()), LatticeModel(tiny_scorer(seed), nn.Identity())),
    }


def under(model: Any, order: torch.Tensor, special: SpecialIds) -> Any:
    """The same model, id i called order[i]."""
    if isinstance(model, BlockwiseModel):
        return BlockwiseModel(under(model.model, order, special), renumbered(model.heads, order, special, Heads))
    if isinstance(model, InterleavedModel):
        linked = renumbered(model.interleaving, order, special, Interleaving)
        return InterleavedModel(under(model.model, order, special), linked)
    if isinstance(model, LatticeModel):
        return LatticeModel(renumbered(model.model, order, special, Scorer), nn.Identity())
    return renumbered(model, order, special, OnePass if isinstance(model, OnePass) else Transformer)


def loss(objective: Any, model: Any, batch: Batch, training: bool) -> tuple[float, dict[str, float], int]:
    prepared = objective.prepare(batch, torch.Generator().manual_seed(3))
    found = objective.loss(model.train(training), prepared)
    return float(found.total), {name: float(value) for name, value in found.figures.items()}, prepared.tokens


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000), training=st.booleans(), data=st.data())
def test_other_numbers_have_the_same_loss(seed, training, data):
    order = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(seed))
    special = specials(order)
    # Any id may be what fills rows up, a word's and EOS's too.
    filling = replace(special, pad=data.draw(st.integers(0, VOCABULARY - 1)), suppress=special.never_generated)
    here, there = a_batch(seed, torch.arange(VOCABULARY), DEFAULT_IDS), a_batch(seed, order, filling)
    for name, (objective, model) in models(seed).items():
        total, figures, tokens = loss(objective, model, here, training)
        assert tokens == int(here.target_lengths.sum())
        assert (total > 0) == (tokens > 0), name
        found = loss(objective, under(model, order, special), there, training)
        assert found == (pytest.approx(total), pytest.approx(figures), tokens), name


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000))
def test_other_numbers_are_as_likely(seed):
    order = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(seed))
    special = specials(order)
    here, there = a_batch(seed, torch.arange(VOCABULARY), DEFAULT_IDS), a_batch(seed, order, special)
    model, interleaved = tiny_model(seed), tiny_interleaved(seed, {"h": 2, "c": 2, "link": 3})
    pairs = [
        (autoregressive_likelihood(each, RUNNER) for each in (model, under(model, order, special))),
        (interleaved_likelihood(each, RUNNER) for each in (interleaved, under(interleaved, order, special))),
    ]
    for expected, found in pairs:
        assert (expected.special, found.special) == (DEFAULT_IDS, special)
        torch.testing.assert_close(found.log_probabilities(there), expected.log_probabilities(here))


def test_a_canvas_needs_a_mask():
    with pytest.raises(OptionError, match="expects a mask among the special ids"):
        tiny_one_pass(special=SpecialIds(mask=None))
