"""Sentences that are given up, at any moment: the others' outputs are what they were, and the slots are free again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import Decoder, Limits, Runner
from longstride.runtime.eager import EagerRunner
from longstride.search.lengths import LengthRegression
from longstride.systems.autoregressive.decoder import Beam, BeamOptions, Greedy
from longstride.systems.draft_verify.beam_decoder import DraftBeam, DraftBeamOptions
from longstride.systems.draft_verify.decoder import Draft
from longstride.systems.interleaved.decoder import Interleaved, InterleavedOptions
from longstride.systems.lattice.decoder import LatticeDecoder
from longstride.systems.non_autoregressive.decoder import NonAutoregressive
from tests.decoding.drafters import tiny_drafter
from tests.decoding.interleaved import tiny_interleaved
from tests.decoding.one_pass import tiny_one_pass
from tests.lattice.models import FakeSource, tiny_scorer
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH
from tests.runtime.test_cuda_graph import taped
from tests.runtime.test_graph_exact import refuse


def interleaved(runner: Runner, seed: int, width: int) -> Decoder:
    model = tiny_interleaved(seed, {"h": 2, "c": 1})
    parts = runner.place(model.model), runner.place(model.interleaving)
    return Interleaved(*parts, runner, InterleavedOptions(width))


def one_pass(runner: Runner, seed: int) -> Decoder:
    return NonAutoregressive(runner.place(tiny_one_pass(seed)), runner)


def drafted_beam(runner: Runner, seed: int) -> Decoder:
    parts = runner.place(tiny_model(seed)), runner.place(tiny_drafter(seed))
    return DraftBeam(*parts, runner, DraftBeamOptions(2, n_best=2))


DECODERS: dict[str, Callable[[Runner, int], Decoder]] = {
    "greedy": lambda runner, seed: Greedy(runner.place(tiny_model(seed)), runner),
    "beam": lambda runner, seed: Beam([runner.place(tiny_model(seed))], runner, BeamOptions(3, n_best=2)),
    "beam-hf": lambda runner, seed: Beam([runner.place(tiny_model(seed))], runner, BeamOptions(3, "hf", 1.0)),
    "interleaved": lambda runner, seed: interleaved(runner, seed, 1),
    "interleaved-beam": lambda runner, seed: interleaved(runner, seed, 3),
    "draft": lambda runner, seed: Draft(runner.place(tiny_model(seed)), runner.place(tiny_drafter(seed)), runner),
    "draft-beam": drafted_beam,
    "one-pass": one_pass,
}


def given_up_at_random(decoder: Decoder, seed: int, capacity: int, limits: Limits) -> None:
    """Ten sentences through a few slots; some are given up as soon as they stand there, some later, some when done."""
    source = random_source(10, 6, seed=seed)
    expected = decoder.decode(source, limits).hypotheses
    session = decoder.start(capacity, limits, source.longest)
    generator = torch.Generator().manual_seed(seed)
    tickets: list[int] = []
    gone: set[int] = set()
    found: dict[int, Any] = {}
    while len(found) + len(gone) < 10:
        count = min(session.free, 10 - len(tickets))
        if count:
            tickets += session.admit(source.slice(len(tickets), len(tickets) + count))
        for moment in range(2):
            for ticket in tickets:
                if ticket not in found and ticket not in gone and torch.rand((), generator=generator) < 0.15:
                    free = session.free
                    session.cancel(ticket)
                    gone.add(ticket)
                    assert session.free == free + 1
            if moment == 0:
                step = session.advance()
                assert not gone & set(step.ticket[step.active].tolist())
        taken = session.take_finished()
        assert not gone & {one.ticket for one in taken}
        found |= {one.ticket: one.hypotheses for one in taken}
    assert session.free == session.capacity
    with pytest.raises(ValueError, match="expected a sentence that is being decoded"):
        session.cancel(tickets[0])
    session.close()
    for row, ticket in enumerate(tickets):
        if ticket in found:
            assert [one.tokens for one in found[ticket]] == [one.tokens for one in expected[row]]


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=3)
@given(seed=st.integers(0, 10_000), capacity=st.integers(1, 4))
def test_others_go_on_as_if_nothing_had_been(name: str, seed: int, capacity: int) -> None:
    decoder = DECODERS[name](EagerRunner(precision="fp64"), seed)
    given_up_at_random(decoder, seed, capacity, Limits(max_length=10))


@pytest.mark.parametrize("name", DECODERS)
def test_given_up_before_anything_was_done(name: str) -> None:
    """A step of nobody, and the next sentence is decoded as ever."""
    decoder, source = DECODERS[name](EagerRunner(precision="fp64"), 3), random_source(1, 6, seed=3)
    session = decoder.start(2, Limits(max_length=10), source.longest)
    session.cancel(*session.admit(source))
    assert not session.advance().active.any()
    session.admit(source)
    while not (found := session.take_finished()):
        session.advance()
    assert found[0].hypotheses[0].tokens == decoder.decode(source, Limits(max_length=10)).tokens[0]


@pytest.mark.parametrize("name", [name for name in DECODERS if name != "one-pass"])
def test_recordings_go_on_too(name: str) -> None:
    runner, _ = taped()
    decoder = DECODERS[name](runner, 5)
    for seed in (5, 6):  # the second finds a table that was used
        given_up_at_random(decoder, seed, 4, Limits(max_length=8))


@pytest.mark.parametrize("name", [name for name in DECODERS if name != "one-pass"])
def test_a_session_closed_early_leaves_its_table_to_nobody(name: str) -> None:
    runner, _ = taped()
    decoder, source, limits = DECODERS[name](runner, 5), random_source(4, 6, seed=5), Limits(max_length=8, min_length=6)
    for rows in (4, 1):
        session = decoder.start(4, limits, source.longest)
        session.admit(source.slice(0, rows))
        assert int(session.advance().active.sum()) == rows
        session.close()


@BOTH
def test_graphs_go_on_too(graphs: Any) -> None:
    runner = graphs("fp32", 1, tell=refuse)
    for capacity in (1, 3):
        given_up_at_random(DECODERS["beam-hf"](runner, 7), 7, capacity, Limits(max_length=10))
        given_up_at_random(DECODERS["beam"](runner, 8), 8, capacity, Limits(max_length=10))


def test_lattices_go_on_too() -> None:
    runner = EagerRunner("cpu", "fp64")
    decoder = LatticeDecoder(runner.place(tiny_scorer(1)), FakeSource(), LengthRegression(), runner)
    for seed in (1, 2):
        given_up_at_random(decoder, seed, 3, Limits())
