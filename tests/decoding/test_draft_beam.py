"""Beam search with drafts puts out what beam search does, whoever drafts, by no more model calls."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride.contract import Limits, Source
from longstride.engine.pool import PoolKey
from longstride.runtime.eager import EagerRunner
from longstride.search.drafted import DraftedBeamTable
from longstride.search.options import BeamOptions
from longstride.search.session import BeamSession, Sentences
from longstride.systems.autoregressive.decoder import Beam
from longstride.systems.draft_verify.beam_decoder import DraftBeam, DraftBeamOptions
from longstride.systems.draft_verify.drafter import ModelDrafter
from longstride.verification.drafting import Drafter, Proposal, View
from tests.decoding.drafters import KINDS, tiny_drafter
from tests.decoding.test_greedy import LIMITS
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH, Graphs
from tests.runtime.test_graph_beam import refuse

RUNNER = EagerRunner(precision="fp64")
VOCABULARY = 11
SEARCHES = st.builds(
    lambda width, n_best, penalty, strength, early, forced: BeamOptions(
        width,
        penalty,
        strength,
        min(n_best, width),
        early if penalty == "hf" else False,
        forced if penalty == "hf" else False,
    ),
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from(["gnmt", "average", "none", "hf"]),
    st.sampled_from([-0.5, 0.0, 0.6, 1.5]),
    st.sampled_from([True, False, "never"]),
    st.booleans(),
)


class MadeUpDrafter(Drafter):
    """Proposes by a seed and by what is committed: anything, EOS and forbidden ids too, or nothing; or what is `wanted`
    behind a prefix, paths in the order of their lengths."""

    observes = False

    def __init__(self, seed: int, nodes: int, tree: bool, wanted: list[tuple[int, ...]] | None = None) -> None:
        self.block, self.trees, self._seed, self._wanted = nodes, tree, seed, wanted

    def begin(self, rows: int, longest_source: int, longest_output: int, device: torch.device) -> None:
        """Nothing to remember."""

    def admit(self, state: Any, rows: Tensor, source: Source, memory: Any) -> None:
        """Nothing to remember."""

    def per_sentence(self, state: Any) -> list[tuple[Tensor, int]]:
        return []

    def propose(self, state: Any, view: View, block: int) -> Proposal:
        ids, parents = torch.zeros(2, len(view.length), block, dtype=torch.int64)
        count = torch.zeros_like(view.length)
        for row, length in enumerate(view.length.tolist()):
            if self._wanted is not None:
                for place, path in enumerate(self._wanted):
                    ids[row, place] = path[-1]
                    parents[row, place] = 1 + self._wanted.index(path[:-1]) if len(path) > 1 else 0
                count[row] = block
                continue
            chance = random.Random(repr((self._seed, row, view.tokens[row, :length].tolist())))
            count[row] = chance.randint(0, block)
            ids[row] = torch.tensor([chance.randrange(VOCABULARY) for _ in range(block)])
            parents[row] = torch.tensor([chance.randint(0, place) for place in range(block)])
        return Proposal(ids, count, parents if self.trees else None)


def decoded(model, drafter, options, source, limits, capacity):
    """By a table of its own, and the model calls beside the encoder's."""
    search = options.search(limits, model.special.eos)
    key = PoolKey.of(RUNNER, ("made up", drafter), capacity, source.longest, model.options.longest)

    def make(capacity: int, longest_source: int) -> DraftedBeamTable:
        columns = limits.longest_output(longest_source) + 1
        return DraftedBeamTable(model, drafter, RUNNER, search, limits, capacity, longest_source, columns)

    class Made(Beam):
        def start(self, capacity, limits, longest_source):
            return BeamSession(key, make, options.n_best, 1, Sentences, model.special.eos)

    return Made([model], RUNNER, options).decode(source, limits, capacity=capacity, trace=True)


def assert_equal(found, expected):
    assert [[h.tokens for h in row] for row in found.hypotheses] == [
        [h.tokens for h in row] for row in expected.hypotheses
    ]
    for one, other in zip(found.hypotheses, expected.hypotheses, strict=True):
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-9)
        assert [h.log_probability for h in one] == pytest.approx([h.log_probability for h in other], abs=1e-9)
    for trace, row in zip(found.traces, expected.hypotheses, strict=True):
        assert trace.replay() == row[0].tokens


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 4),
    capacity=st.integers(1, 3),
    options=SEARCHES,
    limits=LIMITS,
    sharpness=st.sampled_from([0.5, 1.5, 3.0]),
    nodes=st.integers(1, 9),
    tree=st.booleans(),
    forced=st.sampled_from([None, 7]),
)
def test_equals_the_beam_whatever_is_drafted(seed, rows, capacity, options, limits, sharpness, nodes, tree, forced):
    model = tiny_model(seed, sharpness=sharpness)
    source = random_source(rows, 5, seed=seed)
    forced = forced if forced not in limits.banned else None
    limits = replace(limits, forced_first=forced, forced_last=forced if seed % 2 else None)
    expected = Beam([model], RUNNER, options).decode(source, limits, capacity=capacity)
    found = decoded(model, MadeUpDrafter(seed, nodes, tree), options, source, limits, capacity)
    assert_equal(found, expected)
    assert found.calls <= expected.calls


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000), width=st.integers(1, 3))
def test_steps_that_were_read_need_no_call(seed, width):
    """Every draft holds all that two tokens could be: two steps of three, and a third by what stands behind them."""
    model = tiny_model(seed, sharpness=1.5)
    source, limits = random_source(1, 5, seed=seed), Limits(max_length=6)
    words = range(VOCABULARY)
    wanted = [*((one,) for one in words), *((one, two) for one in words for two in words)]
    drafter = MadeUpDrafter(seed, len(wanted), True, wanted)
    expected = Beam([model], RUNNER, BeamOptions(width)).decode(source, limits)
    found = decoded(model, drafter, BeamOptions(width), source, limits, 1)
    assert_equal(found, expected)
    encoder, steps = 1, expected.calls - 1
    assert found.calls == encoder + -(-steps // 3)


@settings(max_examples=8)
@given(
    seed=st.integers(0, 10_000),
    kind=KINDS,
    rows=st.integers(1, 3),
    capacity=st.integers(1, 3),
    width=st.integers(1, 4),
    limits=LIMITS,
    nodes=st.integers(1, 7),
)
def test_a_drafter_changes_nothing(seed, kind, rows, capacity, width, limits, nodes):
    model, drafter = tiny_model(seed, sharpness=1.5), tiny_drafter(seed, **kind)
    source = random_source(rows, 5, seed=seed)
    expected = Beam([model], RUNNER, BeamOptions(width)).decode(source, limits, capacity=capacity)
    decoder = DraftBeam(model, drafter, RUNNER, DraftBeamOptions(width, tree=nodes))
    assert_equal(decoder.decode(source, limits, capacity=capacity, trace=True), expected)


class Told(ModelDrafter):
    """Keeps what it would draft behind which prefix; if `anew`, with nothing cached. It proposes all words there are,
    so that two steps come between two drafts."""

    def __init__(self, *given: Any, anew: bool) -> None:
        super().__init__(*given)
        self.anew, self.drafts = anew, {}

    def follow(self, state: Any, there: list[int], here: list[int], length: int) -> None:
        if not self.anew:
            super().follow(state, there, here, length)

    def propose(self, state: Any, view: View, block: int) -> Proposal:
        window = int(view.length.max()) + 1 if self.anew else view.window
        found = super().propose(state, replace(view, window=window), block)
        for row, length in enumerate(view.length.tolist()):
            if not view.done[row]:
                prefix = tuple(view.tokens[row, :length].tolist())
                self.drafts[row, prefix] = (found.ids[row].tolist(), found.parents[row].tolist())
        ids = torch.arange(block).expand_as(found.ids)
        return replace(found, ids=ids, count=torch.full_like(found.count, block), parents=torch.zeros_like(ids))


@settings(max_examples=4)
@given(seed=st.integers(0, 10_000), width=st.integers(2, 4))
def test_what_a_drafter_remembers_follows_its_hypotheses(seed, width):
    model, drafter = tiny_model(seed, sharpness=1.5), tiny_drafter(seed, prefix="causal")
    source, limits = random_source(3, 5, seed=seed), Limits(max_length=12)
    made = [Told(drafter, model, RUNNER, 4, limits, VOCABULARY, anew=anew) for anew in (False, True)]
    for one in made:
        decoded(model, one, BeamOptions(width), source, limits, 2)
    assert made[0].drafts == made[1].drafts


@settings(max_examples=2)
@given(seed=st.integers(0, 999), precision=st.sampled_from(["fp32", "int8"]))
@BOTH
def test_graphs(graphs: Graphs, seed: int, precision: str) -> None:
    """One by one, twice by one runner, is a batch of them; in fp32 the eager search."""
    model, drafter = tiny_model(seed, torch.float32, sharpness=1.0), tiny_drafter(seed, torch.float32, link=3)
    source, limits = random_source(3, 20, seed=seed), Limits(max_length=30)
    decoder = DraftBeam(model, drafter, graphs(precision, 1, tell=refuse), DraftBeamOptions(2, n_best=2))
    together = decoder.decode(source, limits)
    for _ in range(2):
        assert decoder.decode(source, limits, capacity=1).tokens == together.tokens
    if precision == "fp32":
        eager = Beam([model], EagerRunner(), BeamOptions(2, n_best=2)).decode(source, limits)
        assert together.tokens == eager.tokens
        assert together.scores == pytest.approx(eager.scores, abs=1e-3)


def test_wide_beams_and_what_is_asked_for():
    """Nothing is drafted where it does not pay, unless told."""
    model, drafter = tiny_model(0), tiny_drafter(0)
    source = random_source(2, 5)
    plain = DraftBeam(model, drafter, RUNNER).decode(source)
    assert replace(plain, decoder="beam") == Beam([model], RUNNER).decode(source)
    assert "draft-beam|width:2|" in DraftBeam(model, drafter, RUNNER, DraftBeamOptions(2)).signature
