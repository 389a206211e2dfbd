"""A model whose special ids are others: the same words under other numbers, by every decoder of the ordinary model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import DEFAULT_IDS, Limits, OptionError, Source, SpecialIds
from longstride.nn.transformer import Transformer
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Beam, BeamOptions, Greedy
from longstride.systems.blockwise.decoder import Blockwise
from longstride.systems.draft_verify.copy_decoder import CopyVerify, CopyVerifyOptions
from longstride.systems.draft_verify.decoder import Draft, DraftVerify
from longstride.systems.draft_verify.model import Drafter
from tests.decoding.drafters import tiny_drafter
from tests.decoding.test_blockwise import random_heads
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH

VOCABULARY = 11
ROWS = ("weight", "bias")


def renumbered(module: Any, order: torch.Tensor, special: SpecialIds, kind: Any) -> Any:
    """The same weights with id i called order[i]."""
    other = kind(replace(module.options, special=special)).to(next(module.parameters()).dtype).eval()
    weights = {}
    for name, weight in module.state_dict().items():
        weights[name] = weight
        if weight.dim() == 2 and weight.shape[0] == VOCABULARY:
            weights[name] = torch.empty_like(weight)
            weights[name][order] = weight
    other.load_state_dict(weights)
    return other.requires_grad_(False)


def specials(order: torch.Tensor) -> SpecialIds:
    d = DEFAULT_IDS
    pad, unk, start, eos, mask = (int(order[one]) for one in (d.pad, d.unk, d.start, d.eos, d.mask))
    return SpecialIds(pad, unk, start, eos, mask)


def decoders(model: Any, drafter: Any, heads: Any, runner: Any) -> dict[str, Any]:
    return {
        "greedy": Greedy(model, runner),
        "beam": Beam([model], runner, BeamOptions(3, n_best=2)),
        "blockwise": Blockwise(model, heads, runner),
        "draft-verify": DraftVerify(model, drafter, runner),
        "draft": Draft(model, drafter, runner),
        "copy-verify": CopyVerify(model, runner, CopyVerifyOptions(3, suffix=2)),
    }


def same_under_other_numbers(runner: Any, dtype: torch.dtype, seed: int, limits: Limits) -> None:
    order = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(seed))
    special = specials(order)
    model = tiny_model(seed, dtype, sharpness=2.0, encoder_layers=2)
    drafter = tiny_drafter(seed, dtype, encoder="own")
    heads = random_heads(seed, 4).to(dtype)
    other = renumbered(model, order, special, Transformer)
    source = random_source(3, 6, seed=seed)
    rows = [source.ids[row, : source.lengths[row]] for row in range(source.rows)]
    there = Source.of([order[ids].tolist() for ids in rows])
    renamed = replace(limits, banned=tuple(int(order[one]) for one in limits.banned))
    mine = decoders(other, renumbered(drafter, order, special, Drafter), heads, runner)
    for name, theirs in decoders(model, drafter, heads, runner).items():
        expected = theirs.decode(source, limits, trace=True)
        found = mine[name].decode(there, renamed, trace=True)
        assert found.tokens == [order[torch.tensor(ids, dtype=torch.long)].tolist() for ids in expected.tokens], name
        assert found.scores == pytest.approx(expected.scores, abs=1e-4), name
        assert [trace.replay() for trace in found.traces] == found.tokens


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    limits=st.sampled_from([Limits(max_length=12), Limits(max_length=9, min_length=3, banned=(7,))]),
)
def test_other_numbers_give_the_same_words(seed, limits):
    same_under_other_numbers(EagerRunner(precision="fp64"), torch.float64, seed, limits)


@BOTH
def test_in_graphs_too(graphs):
    for seed in range(3):
        same_under_other_numbers(graphs("fp32", 1), torch.float32, seed, Limits(max_length=12))


def test_the_end_may_not_be_banned_whatever_its_number():
    special = SpecialIds(pad=1, unk=3, start=2, eos=2, mask=None)
    assert special.never_generated == (1,)
    model = renumbered(tiny_model(1), torch.arange(VOCABULARY), special, Transformer)
    decoder = Greedy(model, EagerRunner(precision="fp64"))
    with pytest.raises(OptionError, match="end-of-sentence id 2"):
        decoder.decode(Source.of([[5, 6, 2]]), Limits(banned=(2,)))
    assert decoder.decode(Source.of([[5, 6, 2]]), Limits(max_length=5, banned=(3,))).tokens
