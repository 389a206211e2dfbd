"""Steps have no more slots than the runner computes alike, however long drafts may be, and outputs are greedy's."""

from __future__ import annotations

from typing import Any
from unittest.mock import PropertyMock, patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import Runner
from longstride.verification.batch_state import BatchState
from tests.decoding.test_greedy import LIMITS
from tests.models import random_source
from tests.runtime.test_cuda_graph import EAGER, KINDS, TREES, decoder_of, same, taped

DRAFTING = [kind for kind in (*KINDS, *TREES) if kind != "greedy"]


def widest(run: Any, slots: int) -> tuple[Any, int]:
    """What `run` gives where so many slots are computed alike, and how many slots a step had at most."""
    seen = [0]
    iteration = BatchState.iteration

    def told(self: Any, block: int, *rest: Any) -> Any:
        seen.append(len(self.ticket) * (1 + block))
        return iteration(self, block, *rest)

    known = patch.object(Runner, "steady_slots", new_callable=PropertyMock, return_value=slots)
    with known, patch.object(BatchState, "iteration", told):
        return run(), max(seen)


@settings(max_examples=4)
@given(
    kind=st.sampled_from(DRAFTING),
    recorded=st.booleans(),
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 7),
    slots=st.integers(8, 40),
    limits=LIMITS,
)
def test_drafts_are_cut_to_what_is_computed_alike(kind, recorded, seed, rows, slots, limits):
    runner: Runner = taped()[0] if recorded else EAGER
    source = random_source(rows, 9, seed=seed)
    with patch("longstride.runtime.cuda_graph.CudaGraphRunner.steady_slots", slots):
        found, most = widest(lambda: decoder_of(kind, runner, seed).decode(source, limits, rows), slots)
    same(found, decoder_of("greedy", EAGER, seed).decode(source, limits, rows), traces=False)
    assert 0 < most <= slots


@pytest.mark.parametrize("rule", ["top:2", "distance:1"])
def test_drafts_that_outputs_hang_on_are_never_cut(rule: str) -> None:
    source = random_source(6, 9, seed=3)
    decoder = decoder_of("draft-verify", EAGER, 3, rule)
    expected = decoder.decode(source, capacity=6)
    found, _ = widest(lambda: decoder_of("draft-verify", EAGER, 3, rule).decode(source, capacity=6), 8)
    same(found, expected)


def test_who_asked_for_longer_drafts_is_told_once() -> None:
    said: list[str] = []
    runner, source = taped(said.append)[0], random_source(4, 9, seed=3)
    expected = decoder_of("greedy", EAGER, 3).decode(source)
    with patch("longstride.runtime.cuda_graph.CudaGraphRunner.steady_slots", 12):
        for insists in (False, True, True):
            decoder = decoder_of("draft-verify", runner, 3)
            decoder.insists = insists  # type: ignore[attr-defined]
            same(decoder.decode(source), expected, traces=False)
            assert len(said) == insists
    assert said[0].startswith("4 drafted tokens were asked for; with 4 rows 2 are drafted, since ")
