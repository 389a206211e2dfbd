"""Attention of a drafter's pass by one kernel: on a CUDA device, or in Triton's interpreter."""

from __future__ import annotations

import ast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride.ops.cuda.self_test import TOLERANCE
from longstride.ops.cuda.table import HEADS
from longstride.ops.kernels import TYPES
from longstride.systems.draft_verify import canvas_attention
from tests.nn import test_overlap as overlap
from tests.nn.running_kernels import attended, where

SLOTS = 96
"""Of the trial's cache: more than one tile of keys, none of them full."""
FILE = "ops/cuda/canvas_attention.py"


@pytest.mark.gpu
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("head", "window", "block"), [(16, 1, 10), (16, 18, 17), (64, 11, 10)])
def test_tokens_see_earlier_ones_and_masks_see_all(head, window, block, last):
    device = where()
    worst = trial(device, torch.float32, head, window, block, last)
    assert worst <= TOLERANCE[torch.float32]


@pytest.mark.gpu
@settings(max_examples=8)
@given(seed=st.integers(0, 10_000), length=st.integers(1, 70), more=st.integers(1, 20), block=st.integers(1, 18))
def test_how_many_tokens_are_run_again_does_not_matter(seed, length, more, block):
    """Not to the last bit: so rows that began at different times draft the same."""
    device, width = where(), 16
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
def test_so_it_is_on_a_gpu(dtype):
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    for head in HEADS:
        for last in (False, True):
            assert trial(torch.device("cuda", 0), dtype, head, last=last) <= TOLERANCE[dtype]


def kernels_of_ours() -> list[ast.FunctionDef]:
    every = ast.parse((overlap.PACKAGE / FILE).read_text()).body
    found = [node for node in every if isinstance(node, ast.FunctionDef)]
    return [node for node in found if "OVERLAP" in [argument.arg for argument in node.args.args]]


@pytest.mark.parametrize("kernel", kernels_of_ours(), ids=lambda kernel: kernel.name)
def test_before_it_waits_a_kernel_reads_weights_alone(kernel):
    overlap.test_before_it_waits_a_kernel_reads_weights_alone(kernel)


@torch.inference_mode()
def trial(
    device: torch.device, dtype: torch.dtype, head: int, window: int = 18, block: int = 17, last: bool = False
) -> float:
    """The largest difference from plain arithmetic in float64, on random numbers."""
    generator = torch.Generator().manual_seed(0)
    heads, length = 2, torch.tensor([0, 5, window, 50, SLOTS])
    rows = len(length)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    packed = random(rows, window + block, 3 * heads * head)
    first = (length - window).clamp(min=0)
    newest = (first[:, None] + torch.arange(window)).to(device)
    filled = (torch.arange(SLOTS) < first[:, None])[:, None, :, None].to(device)
    # What is not written yet may hold anything.
    before = [random(rows, heads, SLOTS, head).masked_fill(~filled, float("nan")) for _ in range(2)]
    written = [old.clone() for old in before]
    length = length.to(device)
    found = canvas_attention.extend(packed, length, window, written[0], written[1], last)

    queries, *new = packed.view(rows, window + block, 3, heads, head).permute(2, 0, 3, 1, 4)
    index = newest[:, None, :, None].expand(-1, heads, -1, head)
    expected = [
        old.nan_to_num(0.0).scatter(2, index, fresh[:, :, :window]) for old, fresh in zip(before, new, strict=True)
    ]
    for mine, right in zip(written, expected, strict=True):
        if not torch.equal(mine.nan_to_num(0.0), right):
            raise ArithmeticError("it leaves other keys or values in the cache than it was given")
    for row in range(rows):
        kept = [old[row : row + 1].clone() for old in before]
        alone = canvas_attention.extend(packed[row : row + 1], length[row : row + 1], window, kept[0], kept[1], last)
        if not torch.equal(alone[0], found[row]):
            raise ArithmeticError("a row's numbers depend on other rows")
    keys, values = (torch.cat([old, fresh[:, :, window:]], dim=2) for old, fresh in zip(expected, new, strict=True))
    right = attended(queries, keys, values, _visible(length, newest, block)[:, None])
    apart = (found.double() - right[:, window:] if last else found.double() - right).abs()
    apart = apart / (right[:, window:] if last else right).abs().clamp(min=1)
    return float(apart.nan_to_num(float("inf")).max())


def _visible(length: Tensor, newest: Tensor, block: int) -> Tensor:
    """[rows, window + block, SLOTS + block] who sees whom: tokens at newest [rows, window] and masks, of the cache's
    slots and the masks behind them"""
    slots = torch.arange(SLOTS, device=length.device)
    rows, window = newest.shape
    of_tokens = slots <= newest[..., None]
    of_masks = (slots < length[:, None])[:, None].expand(-1, block, -1)
    among = (torch.arange(window + block, device=length.device) >= window)[:, None].expand(rows, -1, block)
    return torch.cat([torch.cat([of_tokens, of_masks], dim=1), among], dim=2)
