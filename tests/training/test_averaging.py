"""The mean of checkpoints: exact where there is nothing to average."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from longstride.training.checkpoints import average


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=8), st.integers(1, 7))
def test_weights_that_stayed_come_out_bit_for_bit(numbers: list[float], count: int) -> None:
    frozen = torch.tensor([*numbers, -0.0], dtype=torch.float32)
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / str(number) for number in range(count)]
        for path in paths:
            path.mkdir()
            save_file({"weight": frozen}, path / "model.safetensors")
        found = average(paths)["weight"]
    assert torch.equal(found.view(torch.int32), frozen.view(torch.int32))
