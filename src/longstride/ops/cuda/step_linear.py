"""A Triton kernel for the products of a decoder step: few rows by a weight, with what goes after them.

Libraries choose among kernels by the number of rows, and so a slot's bits depend on how many there are. Here a program
has up to 16 rows and some outputs, and goes over all inputs in one order, whatever the number of rows.

So few rows take next to no arithmetic: what a product costs is waiting, for the weight, for its rows and for one
multiplication after another on a tensor core. So a program asks for its whole stripe of the weight at once, before it
waits for the kernel that makes its rows (`overlap`), and its warps have a share of the inputs each, whose sums are
added at the end.

Imports Triton, so only what has a CUDA device imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from longstride.ops.cuda.overlap import begin, launching, wait

_ROWS = 16
"""The least that products on tensor cores take."""
_LEAST = 16
"""inputs of a warp at a time: likewise"""
_AHEAD = 144 * 1024
"""bytes of weight and rows that a program asks for at once, at most: what is left follows tile by tile. They lie in
shared memory, of which an A100 has 163 KiB and an H200 227. Bits do not depend on it."""


@dataclass(frozen=True)
class Walk:
    """How a program goes over its stripe of the weight: bits depend on it."""

    outputs: int
    """in a stripe"""
    share: int
    """inputs of a warp at a time, at most"""
    warps: int
    """at most"""
    stages: int
    """tiles under way of what is left"""

    def split(self, inputs: int) -> tuple[int, int]:
        """(warps, inputs of each at a time): tiles that divide all inputs"""
        warps = self.warps
        while inputs % (warps * _LEAST):
            warps //= 2
        share = self.share
        while inputs % (warps * share):
            share //= 2
        return warps, share


SHORT, LONG = Walk(outputs=8, share=128, warps=4, stages=3), Walk(outputs=8, share=128, warps=8, stages=3)


def walk_of(inputs: int) -> Walk:
    """By the number of inputs alone: rows and outputs must not matter, so that a slot's bits depend on neither.

    Timed with 512 and 2048 inputs (docs/runtimes.md). Four warps have one tile of 512; from there on every
    further tile costs more than the other four warps do.
    """
    return SHORT if inputs <= SHORT.warps * SHORT.share else LONG


@triton.jit(do_not_specialize=("rows",))
def _product(
    x,
    weight,
    bias,
    added,
    out,
    rows,
    outputs,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    WARPS: tl.constexpr,
    SHARE: tl.constexpr,
    AHEAD: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BIAS: tl.constexpr,
    RELU: tl.constexpr,
    ADDED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """out [rows, outputs] = x [rows, WIDTH] by weight [outputs, WIDTH], and what is asked for after it.

    AHEAD: so many tiles of WARPS * SHARE inputs are asked for at once.
    """
    begin(OVERLAP)
    TILE: tl.constexpr = WARPS * SHARE
    n = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    i = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    part = tl.arange(0, WARPS)[:, None, None] * SHARE
    k = tl.arange(0, SHARE)
    weight_from = weight + n[None, None, :] * WIDTH + part + k[None, :, None]
    place = i[None, :, None] * WIDTH + part + k[None, None, :]
    real = (i < rows)[None, :, None]

    stripes = (tl.load(weight_from),)
    for tile in tl.static_range(1, AHEAD):
        stripes = stripes + (tl.load(weight_from + tile * TILE),)  # noqa: RUF005  # Triton has no other way to say it
    if BIAS:
        after = tl.load(bias + n).to(tl.float32)
    wait(OVERLAP)

    given = (tl.load(x + place, mask=real, other=0.0),)
    for tile in tl.static_range(1, AHEAD):
        given = given + (tl.load(x + place + tile * TILE, mask=real, other=0.0),)  # noqa: RUF005
    total = tl.dot(given[0], stripes[0], input_precision="ieee")
    for tile in tl.static_range(1, AHEAD):
        total = tl.dot(given[tile], stripes[tile], total, input_precision="ieee")
    if WIDTH > AHEAD * TILE:
        for first in range(AHEAD * TILE, WIDTH, TILE):
            some = tl.load(x + place + first, mask=real, other=0.0)
            total = tl.dot(some, tl.load(weight_from + first), total, input_precision="ieee")
    found = tl.sum(total, 0)
    if BIAS:
        found += after[None, :]
    if RELU:
        found = tl.maximum(found, 0.0)
    if ADDED:
        found += tl.load(added + i[:, None] * outputs + n[None, :], mask=(i < rows)[:, None], other=0.0).to(tl.float32)
    tl.store(out + i[:, None] * outputs + n[None, :], found.to(x.dtype.element_ty), mask=(i < rows)[:, None])


def product(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool, added: Tensor | None = None) -> Tensor:
    """x [rows, inputs], contiguous, by weight [outputs, inputs], plus bias [outputs], then plus added [rows, outputs],
    contiguous -> [rows, outputs]"""
    rows, (outputs, inputs) = x.shape[0], weight.shape
    out = x.new_empty((rows, outputs))
    walk = walk_of(inputs)
    warps, share = walk.split(inputs)
    tile = warps * share
    ahead = max(1, min(inputs // tile, _AHEAD // (tile * (walk.outputs + _ROWS) * x.element_size())))
    _product[(outputs // walk.outputs, triton.cdiv(rows, _ROWS))](
        *(x, weight, bias, added, out, rows, outputs),
        ROWS=_ROWS,
        WIDTH=inputs,
        WARPS=warps,
        SHARE=share,
        AHEAD=ahead,
        OUTPUTS=walk.outputs,
        BIAS=bias is not None,
        RELU=relu,
        ADDED=added is not None,
        num_warps=warps,
        num_stages=walk.stages if x.element_size() < 4 else 1,  # tiles of float32 would not find room
        **launching(x),
    )
    return out
