"""Beam search of one sentence in plain numbers, its model calls bound once, against the tensor code."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import Limits
from longstride.systems.autoregressive.decoder import Beam, BeamOptions
from tests.decoding.test_lone_beam import by_tensor_code
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH, Graphs


def refuse(message: str) -> None:
    raise AssertionError(message)


@BOTH
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 999), models=st.integers(1, 2), precision=st.sampled_from(["fp32", "int8"]))
def test_equals_the_tensor_code(graphs: Graphs, seed: int, models: int, precision: str) -> None:
    """Twice by one runner: the second time in a table that an earlier sentence has left."""
    ensemble = [tiny_model(seed + number, torch.float32, sharpness=1.0) for number in range(models)]
    source, limits = random_source(3, 20, seed=seed), Limits(max_length=30)
    ours, theirs = (Beam(ensemble, graphs(precision, 1, tell=refuse), BeamOptions(4, n_best=2)) for _ in range(2))
    expected = by_tensor_code(theirs, source, limits)
    for _ in range(2):
        assert ours.decode(source, limits, capacity=1, trace=True) == expected
