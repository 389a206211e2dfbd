"""A Triton kernel for a vector, or a few, by a large weight, with the sums that go after it.

A program has a few outputs, asks for its stripe of the weight at once, before it waits for the kernel that makes its
rows (`overlap`), and keeps it in registers for one row after another. There are many more programs than processors, and
several of them at a time on each, so that reading never stops.

Imports Triton, so only what has a CUDA device imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from longstride.ops.cuda.overlap import begin, launching, wait

_OUTPUTS = 4
"""of a program"""
_TILE = 1024
"""inputs at a time, at most"""
_AHEAD = 4
"""tiles that are asked for at once, at most: 64 numbers a thread; the rest follows tile by tile, for each row anew"""
_WARPS = 8


@triton.jit(do_not_specialize=("rows",))
def _row_product(
    x,
    weight,
    bias,
    added,
    out,
    rows,
    outputs,
    width,
    INPUTS: tl.constexpr,
    TILE: tl.constexpr,
    AHEAD: tl.constexpr,
    OUTPUTS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """out [rows, outputs] = x [rows, INPUTS] by weight [outputs, INPUTS], plus bias [outputs] and added [rows, width],
    which is repeated over all outputs."""
    begin(OVERLAP)
    n = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    k = tl.arange(0, TILE)
    real = n < outputs
    inside = real[:, None] & (k < TILE)[None, :]
    weight_from = weight + n[:, None] * INPUTS + k[None, :]
    stripes = (tl.load(weight_from, mask=inside, other=0.0),)
    for tile in tl.static_range(1, AHEAD):
        stripes = stripes + (tl.load(weight_from + tile * TILE, mask=inside, other=0.0),)  # noqa: RUF005
    after = tl.load(bias + n, mask=real, other=0.0).to(tl.float32)
    wait(OVERLAP)

    for row in range(rows):
        given = x + row * INPUTS + k
        total = stripes[0].to(tl.float32) * tl.load(given).to(tl.float32)[None, :]
        for tile in tl.static_range(1, AHEAD):
            total += stripes[tile].to(tl.float32) * tl.load(given + tile * TILE).to(tl.float32)[None, :]
        if INPUTS > AHEAD * TILE:
            for first in range(AHEAD * TILE, INPUTS, TILE):
                some = tl.load(weight_from + first, mask=inside, other=0.0).to(tl.float32)
                total += some * tl.load(given + first).to(tl.float32)[None, :]
        more = tl.load(added + row * width + n % width, mask=real, other=0.0).to(tl.float32)
        found = tl.sum(total, 1) + after + more
        tl.store(out + row * outputs + n, found.to(x.dtype.element_ty), mask=real)


def row_product(x: Tensor, weight: Tensor, bias: Tensor, added: Tensor) -> Tensor:
    """x [rows, inputs] by weight [outputs, inputs], plus bias [outputs] and added [rows, width], whose width divides
    the outputs -> [rows, outputs // width, width]"""
    x, added = x.contiguous(), added.contiguous()
    rows, (outputs, inputs) = x.shape[0], weight.shape
    out = x.new_empty((rows, outputs))
    tile = _TILE
    while inputs % tile:
        tile //= 2
    _row_product[(triton.cdiv(outputs, _OUTPUTS),)](
        *(x, weight, bias, added, out, rows, outputs, added.shape[1]),
        INPUTS=inputs,
        TILE=tile,
        AHEAD=min(_AHEAD, inputs // tile),
        OUTPUTS=_OUTPUTS,
        num_warps=_WARPS if tile * _OUTPUTS >= _WARPS * 256 else 4,
        **launching(x),
    )
    return out.view(rows, -1, added.shape[1])
