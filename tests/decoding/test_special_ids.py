"""A model whose special ids are others: the same words under other numbers, by every decoder of the ordinary model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
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
from longstride.systems.interleaved.decoder import Interleaved, InterleavedOptions
from longstride.systems.interleaved.model import Interleaving
from longstride.systems.lattice.counts import count, tables_of
from longstride.systems.lattice.decoder import with_tables
from longstride.systems.lattice.model import Scorer
from longstride.systems.lattice.pipeline import LatticeOptions
from longstride.systems.lattice.tables import CountOptions, Tables
from longstride.systems.non_autoregressive.decoder import NonAutoregressive
from longstride.systems.non_autoregressive.model import OnePass
from longstride.text.binarized import BinarizedCorpus
from tests.decoding.drafters import tiny_drafter
from tests.decoding.interleaved import tiny_interleaved
from tests.decoding.one_pass import tiny_one_pass
from tests.decoding.test_blockwise import random_heads
from tests.lattice.models import tiny_scorer
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH

VOCABULARY = 11
ROWS = ("weight", "bias")


def renumbered(module: Any, order: torch.Tensor, special: SpecialIds, kind: Any) -> Any:
    """The same weights with id i called order[i]."""
    changes = {"special": special} if hasattr(module.options, "special") else {}
    other = kind(replace(module.options, **changes))
    weights = {}
    for name, weight in module.state_dict().items():
        weights[name] = weight
        if weight.dim() == 2 and weight.shape[0] == VOCABULARY:
            weights[name] = torch.empty_like(weight)
            weights[name][order] = weight
    for dtype in dict.fromkeys(weight.dtype for weight in weights.values()):
        other = other.to(dtype)
    other.load_state_dict(weights)
    return other.eval().requires_grad_(False)


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
    mine = decoders(other, renumbered(drafter, order, special, Drafter), heads, runner)
    for name, theirs in decoders(model, drafter, heads, runner).items():
        compared(mine[name], theirs, source, limits, order)


def compared(mine: Any, theirs: Any, source: Source, limits: Limits, order: torch.Tensor) -> None:
    """Two decoders of the same words under other numbers."""
    rows = [source.ids[row, : source.lengths[row]] for row in range(source.rows)]
    there = Source.of([order[ids].tolist() for ids in rows])
    renamed = replace(limits, banned=tuple(int(order[one]) for one in limits.banned))
    expected, found = theirs.decode(source, limits, trace=True), mine.decode(there, renamed, trace=True)
    assert found.tokens == [order[torch.tensor(ids, dtype=torch.long)].tolist() for ids in expected.tokens]
    assert found.scores == pytest.approx(expected.scores, abs=1e-4)
    assert [trace.replay() for trace in found.traces] == found.tokens


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10_000),
    limits=st.sampled_from([Limits(max_length=12), Limits(max_length=9, min_length=3, banned=(7,))]),
)
def test_other_numbers_give_the_same_words(seed, limits):
    same_under_other_numbers(EagerRunner(precision="fp64"), torch.float64, seed, limits)


def parallel_decoders(seed: int, dtype: torch.dtype, runner: Any, order: torch.Tensor) -> Iterator[tuple[Any, Any]]:
    """Interleaved, one-pass and lattice decoders of some words, and of the same words under other numbers."""
    special = specials(order)
    for variant, width in (({"h": 2, "c": 1}, 1), ({"h": 2, "c": 2, "link": 3}, 1), ({"h": 1, "c": 2, "link": 3}, 3)):
        model = tiny_interleaved(seed, variant, ending=1.0).to(dtype)
        other = renumbered(model.model, order, special, Transformer)
        linked = renumbered(model.interleaving, order, special, Interleaving)
        options = InterleavedOptions(width)
        yield Interleaved(other, linked, runner, options), Interleaved(model.model, model.interleaving, runner, options)
    one_pass = tiny_one_pass(seed, dtype, copy="uniform")
    other = renumbered(one_pass, order, special, OnePass)
    yield NonAutoregressive(other, runner), NonAutoregressive(one_pass, runner)
    scorer = tiny_scorer(seed, dtype)
    other, mine, theirs = renumbered(scorer, order, special, Scorer), tables(seed, order), tables(seed)
    for options in (LatticeOptions(VOCABULARY), LatticeOptions(4, construction="model", order=3)):
        yield with_tables(other, mine, runner, options), with_tables(scorer, theirs, runner, options)


def tables(seed: int, order: torch.Tensor | None = None) -> Tables:
    """Of a random corpus; of the same one under other numbers."""
    names = torch.arange(VOCABULARY) if order is None else order
    generator = torch.Generator().manual_seed(seed)

    def sentence() -> list[int]:
        length = int(torch.randint(1, 6, (), generator=generator))
        return names[torch.randint(5, VOCABULARY, (length,), generator=generator)].tolist()

    pairs = [(sentence(), sentence()) for _ in range(12)]
    links = [int(torch.randint(-1, len(source), (), generator=generator)) for source, target in pairs for _ in target]
    corpus = BinarizedCorpus.from_pairs(pairs, DEFAULT_IDS if order is None else specials(order))
    options = CountOptions(reach=2, keep=VOCABULARY)
    return tables_of(count(corpus, np.array(links, np.int32), VOCABULARY, VOCABULARY, options), options, "hash")


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000), limits=st.sampled_from([Limits(max_length=12), Limits(max_length=9, banned=(7,))]))
def test_decoders_that_write_several_words_at_once_too(seed, limits):
    order = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(seed))
    source = random_source(3, 6, seed=seed)
    for mine, theirs in parallel_decoders(seed, torch.float64, EagerRunner(precision="fp64"), order):
        compared(mine, theirs, source, limits, order)


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_candidates_are_the_same_words(seed):
    order = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(seed))
    mine, theirs, source = tables(seed, order), tables(seed), random_source(4, 6, seed=seed)
    found = mine.candidates(order[source.ids], source.lengths, 7, VOCABULARY)
    expected = theirs.candidates(source.ids, source.lengths, 7, VOCABULARY)

    def scores(candidates: Any, names: torch.Tensor) -> torch.Tensor:  # by word; equal scores may stand in any order
        empty = torch.full((source.rows, 7, VOCABULARY), -torch.inf)
        here = candidates.log_scores > -torch.inf
        return empty.scatter_reduce(2, names[candidates.ids], candidates.log_scores.where(here, -torch.inf), "amax")

    assert torch.equal(scores(found, torch.arange(VOCABULARY)), scores(expected, order))


@BOTH
def test_graphs_of_several_words_at_once_too(graphs):
    order = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(4))
    for mine, theirs in parallel_decoders(4, torch.float32, graphs("fp32", 1), order):
        compared(mine, theirs, random_source(3, 6, seed=4), Limits(max_length=12), order)


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
