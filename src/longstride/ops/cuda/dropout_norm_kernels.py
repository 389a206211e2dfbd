"""Triton kernels for the end of a residual block in training: dropout, sum and layer norm at once, both passes.

What bounds them is memory: forward reads two tensors and writes one, backward reads three and writes two. Nothing is
stored for dropout: one call of Philox decides for eight neighbours, and backward calls it again. Inductor makes a call
for each number, four times the instructions of this whole pass, and stores a byte for each. A program is one warp with
one row at a time, so that sums over a row need no barrier; it walks over many rows, so that its share of the norm's own
gradients grows in registers. The number of rows is a plain argument: a new one compiles nothing.

Imports Triton, so only what has a CUDA device imports this. Knows no autograd and no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

_CHANCES = 1 << 16
"""Dropout compares 16 random bits, so that eight decisions come from one call of Philox."""


@dataclass
class Walk:
    """How programs, each of one warp, share the rows."""

    programs: int
    """for each multiprocessor"""
    stages: int
    """rows under way to a program at once, through shared memory; 1: straight into registers"""


FORWARD = Walk(programs=24, stages=1)
BACKWARD = Walk(programs=16, stages=1)


@triton.jit
def _dropped(seed, row, threshold, boost, WIDTH: tl.constexpr):
    """[WIDTH]: what dropout multiplies by, 0 or `boost`; depends on seed, row and column alone."""
    counter = tl.arange(0, WIDTH // 8).to(tl.uint32)
    nothing = counter * 0
    a, b, c, d = tl.philox(seed, counter, nothing + row.to(tl.uint32), nothing, nothing, 7)
    words = tl.join(tl.join(a, b), tl.join(c, d))
    halves = tl.join(words & 0xFFFF, words >> 16)
    return tl.where(tl.reshape(halves, (WIDTH,)).to(tl.int32) >= threshold, boost, 0.0)


@triton.jit(do_not_specialize=("rows", "threshold"))
def _norm_forward(
    x,
    block,
    weight,
    bias,
    seed,
    out,
    statistics,
    rows,
    threshold,
    boost,
    epsilon,
    WIDTH: tl.constexpr,
    STAGES: tl.constexpr,
    DROPOUT: tl.constexpr,
):
    """out = norm(x + dropout(block)); `statistics` [rows, 2] gets the norm's mean and factor, in float32."""
    column = tl.arange(0, WIDTH)
    gain = tl.load(weight + column).to(tl.float32)
    shift = tl.load(bias + column).to(tl.float32)
    drawn = tl.load(seed) if DROPOUT else 0
    first = tl.program_id(0)
    for turn in tl.range(0, tl.cdiv(rows - first, tl.num_programs(0)), num_stages=STAGES):
        row = first + turn * tl.num_programs(0)
        place = row.to(tl.int64) * WIDTH + column
        total = tl.load(x + place).to(tl.float32)
        added = tl.load(block + place).to(tl.float32)
        if DROPOUT:
            added *= _dropped(drawn, row, threshold, boost, WIDTH)
        total += added
        middle = tl.sum(total, 0) / WIDTH
        apart = total - middle
        factor = tl.rsqrt(tl.sum(apart * apart, 0) / WIDTH + epsilon)
        found = apart * factor * gain + shift
        tl.store(out + place, found.to(out.dtype.element_ty))
        tl.store(statistics + 2 * row, middle)
        tl.store(statistics + 2 * row + 1, factor)


@triton.jit(do_not_specialize=("rows", "threshold"))
def _norm_backward(
    grad,
    x,
    block,
    weight,
    seed,
    statistics,
    dx,
    dblock,
    partial,
    rows,
    threshold,
    boost,
    WIDTH: tl.constexpr,
    STAGES: tl.constexpr,
    DROPOUT: tl.constexpr,
    WANTED: tl.constexpr,
):
    """Without dropout `dblock` would be `dx` and is not written; `partial` [programs, 2, width] gets this program's
    share of the gradients of weight and bias, if they are `WANTED`."""
    column = tl.arange(0, WIDTH)
    gain = tl.load(weight + column).to(tl.float32)
    drawn = tl.load(seed) if DROPOUT else 0
    dweight = tl.zeros((WIDTH,), tl.float32)
    dbias = tl.zeros((WIDTH,), tl.float32)
    first = tl.program_id(0)
    for turn in tl.range(0, tl.cdiv(rows - first, tl.num_programs(0)), num_stages=STAGES):
        row = first + turn * tl.num_programs(0)
        place = row.to(tl.int64) * WIDTH + column
        total = tl.load(x + place).to(tl.float32)
        added = tl.load(block + place).to(tl.float32)
        above = tl.load(grad + place).to(tl.float32)
        middle = tl.load(statistics + 2 * row)
        factor = tl.load(statistics + 2 * row + 1)
        if DROPOUT:
            share = _dropped(drawn, row, threshold, boost, WIDTH)
            added *= share
        normed = (total + added - middle) * factor
        if WANTED:
            dweight += above * normed
            dbias += above
        below = above * gain
        along = tl.sum(below * normed, 0) / WIDTH
        level = tl.sum(below, 0) / WIDTH
        below = (below - level - normed * along) * factor
        tl.store(dx + place, below.to(dx.dtype.element_ty))
        if DROPOUT:
            tl.store(dblock + place, (below * share).to(dx.dtype.element_ty))
    if WANTED:
        mine = partial + first.to(tl.int64) * (2 * WIDTH) + column
        tl.store(mine, dweight)
        tl.store(mine + WIDTH, dbias)


def forward(
    x: Tensor, block: Tensor, weight: Tensor, bias: Tensor, seed: Tensor | None, dropout: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """x and block [..., width], contiguous; seed [1] int64, needed for dropout.
    -> norm(x + dropout(block)) and what `backward` wants to have again, [rows, 2]."""
    width = x.shape[-1]
    rows = x.numel() // width
    out = torch.empty_like(x)
    statistics = torch.empty((rows, 2), dtype=torch.float32, device=x.device)
    if rows == 0:
        return out, statistics
    threshold, boost = _chance(dropout)
    _norm_forward[(_programs(rows, x.device, FORWARD),)](
        *(x, block, weight, bias, seed, out, statistics),
        *(rows, threshold, boost, epsilon),
        WIDTH=width,
        STAGES=FORWARD.stages,
        DROPOUT=seed is not None,
        num_warps=1,
    )
    return out, statistics


def backward(
    grad: Tensor,
    x: Tensor,
    block: Tensor,
    weight: Tensor,
    seed: Tensor | None,
    statistics: Tensor,
    dropout: float,
    wanted: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """grad like x, contiguous -> gradients of x, of block (empty without dropout: the same) and, as float32 [2, width],
    of weight and bias (empty unless `wanted`)."""
    width = x.shape[-1]
    rows = x.numel() // width
    dx = torch.empty_like(x)
    dblock = torch.empty_like(x) if seed is not None else x.new_empty(0)
    if rows == 0:
        return dx, dblock, statistics.new_zeros((2, width) if wanted else 0)
    programs = _programs(rows, x.device, BACKWARD)
    partial = statistics.new_empty((programs, 2, width) if wanted else 0)
    threshold, boost = _chance(dropout)
    _norm_backward[(programs,)](
        *(grad, x, block, weight, seed, statistics, dx, dblock, partial),
        *(rows, threshold, boost),
        WIDTH=width,
        STAGES=BACKWARD.stages,
        DROPOUT=seed is not None,
        WANTED=wanted,
        num_warps=1,
    )
    return dx, dblock, partial.sum(0) if wanted else partial


def _programs(rows: int, device: torch.device, walk: Walk) -> int:
    return min(rows, _multiprocessors(device) * walk.programs)


@lru_cache
def _multiprocessors(device: torch.device) -> int:
    """Of the device; one where Triton's interpreter runs."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _chance(dropout: float) -> tuple[int, float]:
    """How many of the 16-bit numbers mean "dropped", and what is kept is multiplied by."""
    threshold = min(round(dropout * _CHANCES), _CHANCES - 1)
    return threshold, _CHANCES / (_CHANCES - threshold)
