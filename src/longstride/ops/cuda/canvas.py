"""A Triton kernel for what a drafter's decoder is given: slots, what they read and whom they see, one program a slot.

Imports Triton, so only what has a CUDA device imports this. Knows no models and no sessions.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from longstride.ops.cuda.overlap import begin, launching, wait


@triton.jit(do_not_specialize=("window", "step", "columns", "canvas", "seen", "offset"))
def _canvas(
    tokens,
    length,
    embedding,
    masked,
    places,
    x,
    place,
    slots,
    mask,
    newest,
    window,
    step,
    columns,
    canvas,
    seen,
    offset,
    scale,
    width,
    WIDTH: tl.constexpr,
    SEEN: tl.constexpr,
    START: tl.constexpr,
    PLACED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One slot: of the newest `window` tokens of a row, or of the masks behind them.

    Written on demand: with PLACED, places; with SEEN, so many columns of a mask at least, and the cache's slots.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    here = tl.program_id(0)
    row = (here // step).to(tl.int64)
    slot = here % step
    begun = tl.load(length + row).to(tl.int32)
    of_token = slot < window
    at = tl.where(of_token, tl.maximum(begun - window, 0) + slot, begun + slot - window)
    trained = step - window

    unit = tl.arange(0, WIDTH)
    inside = unit < width
    from_token = tl.where(of_token, width, 0)  # so many units are a token's; the others, all or none, a mask's
    token = tl.load(tokens + row * columns + at, mask=of_token, other=0)
    read = tl.load(embedding + token * width + unit, mask=unit < from_token, other=0.0)
    empty = tl.load(masked + (row * canvas + at) * width + unit, mask=inside & (unit >= from_token), other=0.0)
    where = tl.load(places + (at + offset) * width + unit, mask=inside, other=0.0)
    # Rounded where each step would be a kernel of its own.
    scaled = (read.to(tl.float32) * scale).to(read.dtype).to(tl.float32)
    given = tl.where(of_token, scaled, empty.to(tl.float32))
    out = here.to(tl.int64) * width + unit
    tl.store(x + out, (given + where.to(tl.float32)).to(read.dtype), mask=inside)
    if PLACED:
        tl.store(place + out, where, mask=inside)

    last = tl.load(tokens + row * columns + tl.maximum(begun - 1, 0))
    tl.store(newest + row, tl.where(begun > 0, last, START), mask=slot == 0)

    if SEEN:
        tl.store(slots + here, tl.where(of_token, at, canvas + slot - window).to(tl.int64))
        key = tl.arange(0, SEEN)
        # A token sees tokens up to itself; a mask all of them, and the block behind the canvas.
        prefix = tl.where(of_token, at + 1, begun)
        block = tl.where(of_token, canvas + trained, canvas)
        visible = (key < prefix) | ((key >= block) & (key < canvas + trained))
        shown = tl.where(visible, 0.0, float("-inf")).to(read.dtype)
        tl.store(mask + here.to(tl.int64) * seen + key, shown, mask=key < seen)


def canvas(
    tokens: Tensor,
    length: Tensor,
    window: int,
    block: int,
    embedding: Tensor,
    scale: float,
    masked: Tensor,
    places: Tensor,
    offset: int,
    start: int,
    placed: bool,
    seen: int | None,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor]:
    """tokens [rows, columns], a row's ids side by side; length [rows]; embedding [vocabulary, width]; masked [rows,
    canvas, width] and places [positions, width], all contiguous; `offset`: the place of position 0; `start`: the id
    before the first; `placed`: whether places are wanted; `seen`: the cache's slots, if slots and mask are.
    -> x and place [rows, step, width], slots [rows, step], mask [rows, 1, step, seen], the newest ids [rows]."""
    rows, step, width = tokens.shape[0], window + block, masked.shape[2]
    x = masked.new_empty((rows, step, width))
    newest = torch.empty(rows, dtype=torch.int64, device=tokens.device)
    place = torch.empty_like(x) if placed else None
    slots = None if seen is None else torch.empty((rows, step), dtype=torch.int64, device=tokens.device)
    mask = None if seen is None else masked.new_empty((rows, 1, step, seen))
    tile, keys = triton.next_power_of_2(width), 0 if seen is None else triton.next_power_of_2(seen)
    with torch.cuda.device_of(tokens):
        _canvas[(rows * step,)](
            *(tokens, length, embedding, masked, places, x, place, slots, mask, newest),
            *(window, step, tokens.stride(0), masked.shape[1], seen or 0, offset, scale, width),
            WIDTH=tile,
            SEEN=keys,
            START=start,
            PLACED=placed,
            num_warps=max(1, min(8, max(tile, keys) // 128)),
            enable_fp_fusion=False,  # a product and a sum, each rounded
            **launching(tokens),
        )
    return x, place, slots, mask, newest
