"""A Triton kernel for the products of wide steps: the bits of `step_linear`, for as many rows as there are.

There, warps have a share of the inputs each, and their sums are added at the end, in pairs. With more rows arithmetic
counts, and a program's warps had better share its rows and outputs. So here one share comes after the other, in the
order in which their sums are added there: partial sums wait until their pair is complete. What a slot's numbers are
depends on neither the number of slots nor the kernel that made them.

Imports Triton, so only what has a CUDA device imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from longstride.ops.cuda import step_linear
from longstride.ops.cuda.overlap import begin, launching, wait
from longstride.ops.cuda.step_linear import walk_of


@dataclass(frozen=True)
class Tile:
    """What a program has: speed depends on it, bits do not."""

    rows: int
    outputs: int
    inputs: int
    """at a time"""
    warps: int
    stages: int
    """tiles under way"""


TILES = (Tile(16, 32, 128, 4, 3), Tile(64, 32, 128, 4, 3), Tile(64, 64, 128, 4, 3))
"""Timed with 512 and 2048 inputs and 512 to 16,000 outputs (docs/log.md)."""
AT_ONCE = 132
"""Programs that run at once on a device with a processor for each, as an H200 has: more of them would take turns."""
NARROW = 16
"""Rows of a program of `step_linear`, which asks for its weights before its rows are there; and twice as many of its
programs, which are small, run at once."""


def tile_of(rows: int, outputs: int) -> Tile:
    """The smallest with which all programs run at once, else the largest."""
    for tile in TILES:
        if outputs // tile.outputs * triton.cdiv(rows, tile.rows) <= AT_ONCE:
            return tile
    return TILES[-1]


def is_narrow(rows: int, outputs: int) -> bool:
    """Whether `step_linear` is the faster way to the same bits."""
    return outputs // 8 * triton.cdiv(rows, NARROW) <= (2 * AT_ONCE if rows <= NARROW else AT_ONCE)


@triton.jit(do_not_specialize=("rows",))
def _wide_product(
    x,
    weight,
    bias,
    added,
    out,
    rows,
    outputs,
    WIDTH: tl.constexpr,
    SHARES: tl.constexpr,
    SHARE: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    SOME: tl.constexpr,
    BIAS: tl.constexpr,
    RELU: tl.constexpr,
    ADDED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """out [rows, outputs] = x [rows, WIDTH] by weight [outputs, WIDTH], and what is asked for after it.

    Share s has SHARE inputs of every SHARES * SHARE, from s * SHARE on.
    """
    begin(OVERLAP)
    PIECES: tl.constexpr = SHARE // SOME
    EACH: tl.constexpr = WIDTH // (SHARES * SOME)  # pieces of a share, all told
    n = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    i = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, SOME)
    weight_from = weight + n[None, :].to(tl.int64) * WIDTH + k[:, None]
    place = x + i[:, None].to(tl.int64) * WIDTH + k[None, :]
    real = (i < rows)[:, None]
    if BIAS:
        after = tl.load(bias + n).to(tl.float32)
    wait(OVERLAP)

    total = tl.zeros((ROWS, OUTPUTS), tl.float32)
    one = total  # sums that wait for another: of one share, of two, of four
    two = total
    four = total
    for number in range(SHARES * EACH):
        turn = number // EACH
        within = number % EACH
        # 0, 2, 1, 3 or 0, 4, 2, 6, 1, 5, 3, 7: pairs that are half of all shares apart are added first.
        share = turn
        if SHARES == 4:
            share = (turn % 2) * 2 + turn // 2
        if SHARES == 8:
            share = (turn % 2) * 4 + turn // 2 % 2 * 2 + turn // 4
        first = within // PIECES * (SHARES * SHARE) + share * SHARE + within % PIECES * SOME
        some = tl.load(place + first, mask=real, other=0.0)
        total = tl.dot(some, tl.load(weight_from + first), total, input_precision="ieee")
        if within == EACH - 1:
            if turn % 2 == 0:
                one = total
            else:
                total = one + total
                if turn % 4 == 1:
                    two = total
                else:
                    total = two + total
                    four = tl.where(turn % 8 == 3, total, four + total)
            total = tl.zeros((ROWS, OUTPUTS), tl.float32)
    found = four
    if SHARES == 1:
        found = one
    if SHARES == 2:
        found = two
    if BIAS:
        found += after[None, :]
    if RELU:
        found = tl.maximum(found, 0.0)
    to = i[:, None].to(tl.int64) * outputs + n[None, :]
    if ADDED:
        found += tl.load(added + to, mask=real, other=0.0).to(tl.float32)
    tl.store(out + to, found.to(x.dtype.element_ty), mask=real)


def product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    relu: bool,
    added: Tensor | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """As `step_linear.product`, of numbers of 16 bits; `tile` is for tests: all give the same bits."""
    rows, (outputs, inputs) = x.shape[0], weight.shape
    out = x.new_empty((rows, outputs))
    shares, share = walk_of(inputs).split(inputs)
    tile = tile or tile_of(rows, outputs)
    _wide_product[(outputs // tile.outputs, triton.cdiv(rows, tile.rows))](
        *(x, weight, bias, added, out, rows, outputs),
        WIDTH=inputs,
        SHARES=shares,
        SHARE=share,
        ROWS=tile.rows,
        OUTPUTS=tile.outputs,
        SOME=min(tile.inputs, share),
        BIAS=bias is not None,
        RELU=relu,
        ADDED=added is not None,
        num_warps=tile.warps,
        num_stages=tile.stages,
        **launching(x),
    )
    return out


def linear(x: Tensor, weight: Tensor, bias=None, activation=None, added=None) -> Tensor:
    """ops.linear; a slot's bits depend on that slot alone"""
    flat, more = x.flatten(0, -2).contiguous(), None if added is None else added.flatten(0, -2).contiguous()
    narrow = x.element_size() == 4 or is_narrow(len(flat), len(weight))
    run = step_linear.product if narrow else product
    return run(flat, weight, bias, activation == "relu", added=more).view(*x.shape[:-1], weight.shape[0])
