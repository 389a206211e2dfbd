"""Kernels of our own against PyTorch's: on a CUDA device, or in Triton's interpreter where TRITON_INTERPRET is 1."""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn

from longstride.nn.fused import TOLERANCE, add_norm, why_not
from longstride.nn.layers import Residual
from tests.models import tiny_options


def device() -> torch.device:
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("no CUDA device, and TRITON_INTERPRET is not 1")
    return torch.device("cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("width", [16, 80, 512])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5)])
def test_a_sum_and_its_norm_at_once(width, shape):
    where = device()
    x, added = (torch.randn(*shape, width, device=where) * 3 for _ in range(2))
    norm = nn.LayerNorm(width, device=where)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    with torch.inference_mode():
        torch.testing.assert_close(add_norm(x, added, norm), norm(x + added), atol=1e-5, rtol=1e-5)


@pytest.mark.gpu
def test_a_row_does_not_depend_on_the_number_of_rows():
    where = device()
    x, added = torch.randn(9, 48, device=where), torch.randn(9, 48, device=where)
    norm = nn.LayerNorm(48, device=where)
    with torch.inference_mode():
        whole = add_norm(x, added, norm)
        assert all(
            torch.equal(add_norm(x[row : row + 1], added[row : row + 1], norm)[0], whole[row]) for row in range(9)
        )


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_nothing_speaks_against_it_on_a_gpu(dtype):
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    assert why_not(torch.device("cuda", 0), dtype) == ""


def test_elsewhere_it_says_why_not():
    assert "expects a CUDA device" in why_not(torch.device("cpu"), torch.float16)
    assert "expects fp32" in why_not(torch.device("cuda", 0), torch.float64)
    assert not Residual(tiny_options()).fused
