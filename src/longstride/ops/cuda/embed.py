"""A Triton kernel for what the first layer of an encoder or of a decoder step reads: slots, tokens and positions, one
program a slot.

Imports Triton, so only what has a CUDA device imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from longstride.ops.cuda.overlap import begin, launching, wait


@triton.jit(do_not_specialize=("step", "ids_row", "ids_step", "start_row", "last", "offset"))
def _embed(
    ids,
    start,
    depth,
    tokens,
    places,
    x,
    slots,
    step,
    ids_row,
    ids_step,
    start_row,
    last,
    offset,
    scale,
    width,
    WIDTH: tl.constexpr,
    STARTED: tl.constexpr,
    DEEP: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """x = places[offset + slot] + scale * tokens[id], with no position beyond the last; slots count from `start` on,
    or from 0. With DEEP, positions lie depth [rows, step] behind the start instead of where slots do."""
    begin(OVERLAP)
    wait(OVERLAP)
    here = tl.program_id(0)
    row = (here // step).to(tl.int64)
    slot = here % step
    token = tl.load(ids + row * ids_row + slot * ids_step)
    at = slot.to(tl.int64)
    position = at
    if DEEP:
        position = tl.load(depth + here)
    if STARTED:
        first = tl.load(start + row * start_row)
        at += first
        position += first
    unit = tl.arange(0, WIDTH)
    inside = unit < width
    of_token = tl.load(tokens + token * width + unit, mask=inside, other=0.0)
    of_place = tl.load(places + (tl.minimum(position, last) + offset) * width + unit, mask=inside, other=0.0)
    # Rounded once, as PyTorch's own sum with a factor is.
    both = tl.fma(of_token.to(tl.float32), scale, of_place.to(tl.float32))
    tl.store(x + here.to(tl.int64) * width + unit, both.to(of_token.dtype), mask=inside)
    tl.store(slots + here, at)


def embed(
    ids: Tensor,
    start: Tensor | None,
    tokens: Tensor,
    scale: float,
    places: Tensor,
    offset: int,
    last: int,
    depth: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """ids [rows, step] from start [rows] on, or from 0; tokens [vocabulary, width] and places [positions, width],
    contiguous, where position 0 is in row `offset`, and `last` is the last there is; depth [rows, step] of a tree.
    -> x [rows, step, width], slots [rows, step]"""
    (rows, step), width = ids.shape, tokens.shape[1]
    x = tokens.new_empty((rows, step, width))
    slots = torch.empty((rows, step), dtype=torch.int64, device=ids.device)
    begun = ids if start is None else start
    tile = triton.next_power_of_2(width)
    _embed[(rows * step,)](
        *(ids, begun, begun if depth is None else depth.contiguous(), tokens, places, x, slots),
        *(step, *ids.stride(), begun.stride(0), last, offset, scale, width),
        WIDTH=tile,
        STARTED=start is not None,
        DEEP=depth is not None,
        num_warps=max(1, min(4, tile // 256)),
        **launching(ids),
    )
    return x, slots


def embed_of(
    ids: Tensor,
    start: Tensor | None,
    tokens: Tensor,
    scale: float,
    positions: tuple[Tensor, int],
    last: int,
    depth: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """ops.embed"""
    return embed(ids, start, tokens, scale, *positions, last, depth)
