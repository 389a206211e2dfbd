"""A Triton kernel for the end of a residual block: the sum and its norm at once, one program a row.

A row's numbers depend on that row alone, whatever the number of rows. Imports Triton, so only what has a CUDA device
imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from longstride.ops.cuda.overlap import begin, launching, wait


@triton.jit
def _add_norm(x, added, weight, bias, out, width, epsilon, TILE: tl.constexpr, OVERLAP: tl.constexpr):
    """out = norm(x + added), statistics in float32; all rows have `width` elements and lie side by side."""
    begin(OVERLAP)
    row = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, TILE)
    inside = column < width
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    wait(OVERLAP)
    left = tl.load(x + row + column, mask=inside, other=0.0)
    total = left.to(tl.float32) + tl.load(added + row + column, mask=inside, other=0.0).to(tl.float32)
    total = total.to(left.dtype).to(tl.float32)  # the sum is rounded as it is where it has a kernel of its own
    mean = tl.sum(total, axis=0) / width
    apart = tl.where(inside, total - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(apart * apart, axis=0) / width + epsilon)
    found = apart * scale * gain + shift
    tl.store(out + row + column, found.to(left.dtype), mask=inside)


def add_norm(x: Tensor, added: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """x and added [..., width], contiguous -> norm(x + added)"""
    width = x.shape[-1]
    out = torch.empty_like(x)
    tile = triton.next_power_of_2(width)
    warps = max(1, min(8, tile // 128))
    _add_norm[(x.numel() // width,)](
        *(x, added, weight, bias, out, width, epsilon), TILE=tile, num_warps=warps, **launching(x)
    )
    return out


def add_norm_of(x: Tensor, added: Tensor, weight: Tensor, bias: Tensor, eps: float, dropout: float = 0.0) -> Tensor:
    """ops.add_norm"""
    return add_norm(x.contiguous(), added.contiguous(), weight, bias, eps)
