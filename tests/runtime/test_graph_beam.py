"""Beam search by graphs: one sentence at a time, its calls bound once, is a batch of them; in fp32 the eager one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import Limits
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Beam, BeamOptions
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH, Graphs


def refuse(message: str) -> None:
    raise AssertionError(message)


@BOTH
@settings(max_examples=6)
@given(seed=st.integers(0, 999), models=st.integers(1, 2), precision=st.sampled_from(["fp32", "int8"]))
def test_one_by_one_is_a_batch_and_in_fp32_the_eager_search(
    graphs: Graphs, seed: int, models: int, precision: str
) -> None:
    """Twice by one runner: the second time in a table that an earlier sentence has left."""
    ensemble = [tiny_model(seed + number, torch.float32, sharpness=1.0) for number in range(models)]
    source, limits, options = random_source(3, 20, seed=seed), Limits(max_length=30), BeamOptions(4, n_best=2)
    decoder = Beam(ensemble, graphs(precision, 1, tell=refuse), options)
    together = decoder.decode(source, limits)
    for _ in range(2):
        assert decoder.decode(source, limits, capacity=1).hypotheses == together.hypotheses
    if precision == "fp32":
        eager = Beam(ensemble, EagerRunner(), options).decode(source, limits)
        assert together.tokens == eager.tokens
        assert together.scores == pytest.approx(eager.scores, abs=1e-3)
