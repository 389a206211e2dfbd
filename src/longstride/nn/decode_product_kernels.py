"""A Triton kernel for the products of a decoder step: few rows by a weight, with what goes before and after them.

Libraries choose among kernels by the number of rows, and so a slot's bits depend on how many there are. Here a program
has up to 16 rows and some outputs, and goes over all inputs in one order, whatever the number of rows.

So few rows take next to no arithmetic: what a product costs is waiting, for the weight, for its rows and for one
multiplication after another on a tensor core. So a program asks for its whole stripe of the weight at once, before it
waits for the kernel that makes its rows (`overlap`), and its warps have a share of the inputs each, whose sums are
added at the end. A residual sum and its norm, where they go before, are made by every program for itself: reading a row
twice costs less than a kernel of its own.

Imports Triton, so only what has a CUDA device imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from longstride.nn.overlap import launching
from longstride.nn.overlap_kernels import begin, wait

_ROWS = 16
"""The least that products on tensor cores take."""
_LEAST = 16
"""inputs of a warp at a time: likewise"""
_AHEAD = 64 * 1024
"""bytes of the weight that a program asks for at once, at most; what is left follows tile by tile"""


@dataclass
class Walk:
    """How a program goes over its stripe of the weight. Bits depend on it, so all calls share one."""

    outputs: int
    """in a stripe"""
    share: int
    """inputs of a warp at a time, at most"""
    warps: int
    """at most"""
    stages: int
    """tiles under way of what is left"""

    def split(self, inputs: int, whole: bool = False) -> tuple[int, int]:
        """(warps, inputs of each at a time): tiles that divide all inputs, or one tile of the `whole` of them"""
        warps = self.warps
        while inputs % (warps * _LEAST):
            warps //= 2
        share = inputs // warps if whole else self.share
        while inputs % (warps * share):
            share //= 2
        return warps, share


WALK = Walk(outputs=16, share=64, warps=8, stages=3)


@triton.jit(do_not_specialize=("rows",))
def _product(
    x,
    added,
    gain,
    shift,
    also,
    normed,
    weight,
    bias,
    out,
    rows,
    outputs,
    epsilon,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    WARPS: tl.constexpr,
    SHARE: tl.constexpr,
    AHEAD: tl.constexpr,
    OUTPUTS: tl.constexpr,
    NORM: tl.constexpr,
    ALSO: tl.constexpr,
    BIAS: tl.constexpr,
    RELU: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """out [rows, outputs] = x [rows, WIDTH] by weight [outputs, WIDTH], and what is asked for after it.

    With NORM, norm(x + added) takes the place of x, with ALSO plus that, and goes to `normed`; all of WIDTH is then one
    tile. AHEAD: so many tiles of WARPS * SHARE inputs are asked for at once.
    """
    begin(OVERLAP)
    TILE: tl.constexpr = WARPS * SHARE
    n = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    i = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    part = tl.arange(0, WARPS)[:, None, None] * SHARE
    k = tl.arange(0, SHARE)
    weight_from = weight + n[None, None, :] * WIDTH + part + k[None, :, None]
    column = part + k[None, None, :]
    place = i[None, :, None] * WIDTH + column
    real = (i < rows)[None, :, None]

    stripes = (tl.load(weight_from),)
    for tile in tl.static_range(1, AHEAD):
        stripes = stripes + (tl.load(weight_from + tile * TILE),)  # noqa: RUF005  # Triton has no other way to say it
    if BIAS:
        after = tl.load(bias + n).to(tl.float32)
    if NORM:
        factor = tl.load(gain + column).to(tl.float32)
        summand = tl.load(shift + column).to(tl.float32)
    wait(OVERLAP)

    given = (tl.load(x + place, mask=real, other=0.0),)
    for tile in tl.static_range(1, AHEAD):
        given = given + (tl.load(x + place + tile * TILE, mask=real, other=0.0),)  # noqa: RUF005
    some = given[0]
    if NORM:
        both = some.to(tl.float32) + tl.load(added + place, mask=real, other=0.0).to(tl.float32)
        if ALSO:
            more = tl.load(also + place, mask=real, other=0.0).to(tl.float32)
        both = both.to(some.dtype).to(tl.float32)  # rounded as it is where the sum has a kernel of its own
        mean = tl.sum(tl.sum(both, 2), 0) / WIDTH
        apart = both - mean[None, :, None]
        spread = tl.sum(tl.sum(apart * apart, 2), 0) / WIDTH
        scale = 1.0 / tl.sqrt(spread + epsilon)
        some = (apart * scale[None, :, None] * factor + summand).to(some.dtype)
        if ALSO:
            some = (some.to(tl.float32) + more).to(some.dtype)
        tl.store(normed + place, some, mask=real & (tl.program_id(0) == 0))
    total = tl.dot(some, stripes[0], input_precision="ieee")
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
    tl.store(out + i[:, None] * outputs + n[None, :], found.to(x.dtype.element_ty), mask=(i < rows)[:, None])


@dataclass(frozen=True)
class Norm:
    """What goes before a product: norm(x + added) + also."""

    added: Tensor
    """[rows, inputs], contiguous"""
    gain: Tensor
    """[inputs] the norm's weight, and"""
    shift: Tensor
    """[inputs] its bias"""
    epsilon: float
    also: Tensor | None = None
    """[rows, inputs], contiguous"""


def product(
    x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool, norm: Norm | None = None
) -> tuple[Tensor, Tensor]:
    """x [rows, inputs], contiguous, by weight [outputs, inputs], plus bias [outputs]

    -> what was multiplied, x or what the norm makes of it, and the product [rows, outputs]
    """
    rows, (outputs, inputs) = x.shape[0], weight.shape
    out, normed = x.new_empty((rows, outputs)), x if norm is None else torch.empty_like(x)
    before = (None, None, None, None, 0.0)
    if norm is not None:
        before = (norm.added, norm.gain, norm.shift, norm.also, norm.epsilon)
    warps, share = WALK.split(inputs, whole=norm is not None)
    tile = warps * share
    ahead = max(1, min(inputs // tile, _AHEAD // (tile * WALK.outputs * x.element_size())))
    _product[(outputs // WALK.outputs, triton.cdiv(rows, _ROWS))](
        *(x, *before[:4], normed, weight, bias, out, rows, outputs, before[4]),
        ROWS=_ROWS,
        WIDTH=inputs,
        WARPS=warps,
        SHARE=share,
        AHEAD=ahead,
        OUTPUTS=WALK.outputs,
        NORM=norm is not None,
        ALSO=before[3] is not None,
        BIAS=bias is not None,
        RELU=relu,
        num_warps=warps,
        num_stages=WALK.stages if x.element_size() < 4 else 1,  # tiles of float32 would not find room
        **launching(x),
    )
    return normed, out
