"""Attention of a drafter's pass by one kernel: on a CUDA device, or in Triton's interpreter."""

from __future__ import annotations

import ast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.ops.cuda.self_test import TOLERANCE
from longstride.ops.kernels import TYPES
from longstride.systems.draft_verify import canvas_attention
from tests.nn import test_overlap as overlap
from tests.nn.running_kernels import where

FILE = "ops/cuda/canvas_attention.py"
loops = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")


@pytest.mark.gpu
@loops
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("head", "window", "block"), [(16, 1, 10), (16, 18, 17), (64, 11, 10)])
def test_tokens_see_earlier_ones_and_masks_see_all(head, window, block, last):
    device = where(loops=True)
    worst = canvas_attention.trial(device, torch.float32, head, window, block, last)
    assert worst <= TOLERANCE[torch.float32]


@pytest.mark.gpu
@loops
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), length=st.integers(1, 70), more=st.integers(1, 20), block=st.integers(1, 18))
def test_how_many_tokens_are_run_again_does_not_matter(seed, length, more, block):
    """Not to the last bit: so rows that began at different times draft the same."""
    device, width = where(loops=True), 16
    generator = torch.Generator().manual_seed(seed)
    every = torch.randn(1, length, 3 * width, generator=generator).to(device)
    masks = torch.randn(1, block, 3 * width, generator=generator).to(device)
    whole = every.view(length, 3, width)
    found = []
    for window in {1, min(more, length), length}:
        keys, values = torch.full((2, 1, 1, 80, width), float("nan"), device=device)
        keys[0, 0, : length - window], values[0, 0, : length - window] = whole[: length - window, 1:].unbind(1)
        packed = torch.cat([every[:, length - window :], masks], dim=1)
        at = torch.tensor([length], device=device)
        for last in (False, True):
            mixed = canvas_attention.extend(packed, at, window, keys, values, last)
            found.append((mixed[:, -block:], keys[0, 0, :length].clone(), values[0, 0, :length].clone()))
            assert torch.equal(keys[0, 0, :length], whole[:, 1])
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
def test_nothing_speaks_against_it_on_a_gpu(dtype):
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    device = torch.device("cuda", 0)
    assert [canvas_attention.why_not(device, dtype, head) for head in (16, 32, 64, 128)] == [""] * 4


def test_elsewhere_it_says_why_not():
    assert "expects a CUDA device" in canvas_attention.why_not(torch.device("cpu"), torch.float16, 64)
    assert "expects fp32" in canvas_attention.why_not(torch.device("cuda", 0), torch.float64, 64)


def kernels_of_ours() -> list[ast.FunctionDef]:
    every = ast.parse((overlap.PACKAGE / FILE).read_text()).body
    found = [node for node in every if isinstance(node, ast.FunctionDef)]
    return [node for node in found if "OVERLAP" in [argument.arg for argument in node.args.args]]


@pytest.mark.parametrize("kernel", kernels_of_ours(), ids=lambda kernel: kernel.name)
def test_before_it_waits_a_kernel_reads_weights_alone(kernel):
    overlap.test_before_it_waits_a_kernel_reads_weights_alone(kernel)
