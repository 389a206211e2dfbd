"""Where Triton's kernels can be run: on a CUDA device, or in Triton's interpreter where TRITON_INTERPRET is 1."""

from __future__ import annotations

import os

import numpy
import pytest
import torch


def where(loops: bool = False) -> torch.device:
    """The device to try them on; the test is skipped where there is none."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("no CUDA device, and TRITON_INTERPRET is not 1")
    if loops and tuple(map(int, numpy.__version__.split(".")[:2])) >= (2, 4):
        pytest.skip("Triton's interpreter has no loops with this numpy")
    return torch.device("cpu")
