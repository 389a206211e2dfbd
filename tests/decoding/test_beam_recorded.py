"""Captured beam search whose hypotheses share their pasts, with the tensor code that kernels of our own stand for."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import Limits, Runner
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive import decoder as autoregressive
from longstride.systems.autoregressive.decoder import Beam, BeamOptions
from tests.decoding.test_greedy import LIMITS
from tests.models import random_source, tiny_model
from tests.runtime.recording import TapeRecorder

EAGER = EagerRunner(precision="fp64")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> TapeRecorder:
    """Of steps that find pasts in other rows; they do so slowly here."""
    monkeypatch.setattr(autoregressive, "reads_indirection", lambda *_: True)
    return TapeRecorder()


def refuse(message: str) -> None:
    raise AssertionError(message)


def beam_of(runner: Runner, seed: int, models: int, options: BeamOptions) -> Beam:
    every = [runner.place(tiny_model(seed + number, sharpness=1.5)) for number in range(models)]
    return Beam(every, runner, options)


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    batches=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    capacity=st.integers(1, 4),
    limits=LIMITS,
    width=st.integers(1, 4),
    models=st.integers(1, 2),
)
def test_hypotheses_that_share_pasts_are_those_whose_caches_move(seed, batches, capacity, limits, width, models):
    """Tables are kept and filled again: nothing of an earlier sentence shows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(autoregressive, "reads_indirection", lambda *_: True)
        options = BeamOptions(width, n_best=min(2, width))
        runner = CudaGraphRunner("cpu", "fp64", tell=refuse, recorder=TapeRecorder())
        ours, theirs = beam_of(runner, seed, models, options), beam_of(EAGER, seed, models, options)
        for number, rows in enumerate(batches):
            source = random_source(rows, 6, seed=seed + number)
            found = ours.decode(source, limits, capacity=capacity, trace=True)
            expected = theirs.decode(source, limits, capacity=capacity, trace=True)
            assert [[one.tokens for one in row] for row in found.hypotheses] == [
                [one.tokens for one in row] for row in expected.hypotheses
            ]
            assert found.scores == pytest.approx(expected.scores, abs=1e-9)
            assert [trace.replay() for trace in found.traces] == [trace.replay() for trace in expected.traces]


def test_one_recording_serves_all_lengths(recorder):
    """Steps look no further than a row has come, so that spans need no recordings of their own."""
    runner = CudaGraphRunner("cpu", "fp64", tell=refuse, recorder=recorder)
    model = runner.place(tiny_model(5, sharpness=0.2, longest=256))
    source = random_source(1, 4, seed=5)
    limits = Limits(max_length=90, min_length=80, max_extra=90)
    decoded = Beam([model], runner, BeamOptions(2)).decode(source, limits)
    assert len(decoded.tokens[0]) >= 80
    assert recorder.recorded == 2  # an entrance, a step


def test_a_step_writes_no_cache_but_its_own_slots(recorder):
    runner = CudaGraphRunner("cpu", "fp64", tell=refuse, recorder=recorder)
    decoder = beam_of(runner, 5, 1, BeamOptions(3))
    session = decoder.start(2, Limits(max_length=12, min_length=6), 8)
    session.admit(random_source(2, 6, seed=5))
    (cache,) = session.table._caches
    for step in range(5):
        before = cache.keys.clone()
        session.advance()
        changed = (cache.keys != before).flatten(4).any(dim=4).any(dim=2).any(dim=0).any(dim=0)
        assert torch.equal(changed.nonzero()[:, 0], torch.tensor([step]))
