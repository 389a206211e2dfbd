"""What a drafter's decoder is given, by one kernel and by tensor code: on a CUDA device, or in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.nn.fused import TYPES
from longstride.systems.draft_verify.canvas import differing, why_not
from tests.decoding.drafters import tiny_drafter
from tests.nn.running_kernels import where


@pytest.mark.gpu
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    block=st.integers(1, 6),
    width=st.sampled_from([8, 16, 24]),
    positions=st.sampled_from(["learned", "sinusoidal"]),
    scaled=st.booleans(),
)
def test_one_kernel_lays_out_what_thirty_do(seed, block, width, positions, scaled):
    kind = {"block": block, "width": width, "positions": positions, "scale_embeddings": scaled}
    assert differing(tiny_drafter(**kind).options, where(), torch.float32, seed) == ""


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
def test_nothing_speaks_against_it_on_a_gpu(dtype):
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    assert why_not(torch.device("cuda", 0), dtype) == ""


def test_elsewhere_it_says_why_not():
    assert "expects a CUDA device" in why_not(torch.device("cpu"), torch.float16)
    assert "expects fp32" in why_not(torch.device("cuda", 0), torch.float64)
