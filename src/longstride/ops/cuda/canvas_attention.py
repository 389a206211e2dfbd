"""A Triton kernel for the attention of a drafter's pass: tokens, which see earlier ones, and masks, which see all.

The relative of `ops.cuda.decode_attention`: the same tiles, the same walk over the keys, the same rule about what is
read where. Keys are walked over in one order, the masks' first and then tokens by their position, so that a slot's
numbers depend neither on how many tokens are run again nor on how long the cache is. The masks' own keys and values
serve this pass alone and are written nowhere; the tokens' go into the cache.

Imports Triton, so only what has a CUDA device imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from longstride.ops.cuda.decode_attention import _LOG2_E, _QUERIES, WALK, _fold
from longstride.ops.cuda.overlap import begin, launching, wait


@triton.jit
def _seen(
    j,
    block,
    window,
    begun,
    i,
    of_mask,
    old_keys,
    old_values,
    given,
    width,
    HEAD: tl.constexpr,
):
    """Keys j, on their side, their values, and what is added to the scores of queries i: 0, or -inf where not seen.

    The first `block` are the masks', where the pass left them; then tokens from position 0 on, in the cache or, the
    newest `window`, in the pass.
    """
    d = tl.arange(0, HEAD)
    first = tl.maximum(begun - window, 0)
    position = j - block
    masked, old = j < block, (j >= block) & (position < first)
    real = masked | (position < first + window)
    place = tl.where(masked, window + j, position - first) * (3 * width)
    k_from = tl.where(old, old_keys + position * HEAD, given + width + place)
    v_from = tl.where(old, old_values + position * HEAD, given + 2 * width + place)
    k = tl.load(k_from[None, :] + d[:, None], mask=real[None, :], other=0.0)
    v = tl.load(v_from[:, None] + d[None, :], mask=real[:, None], other=0.0)
    # Masks see masks and what is committed; a token sees none of the masks, and tokens up to itself.
    upto = tl.where(of_mask, begun, first + i + 1)
    visible = tl.where(masked[None, :], of_mask, (position[None, :] < upto[:, None]) & real[None, :])
    return k, v, tl.where(visible, 0.0, float("-inf"))


@triton.jit(do_not_specialize=("window", "block", "longest"))
def _extend_canvas(
    packed,
    length,
    keys,
    values,
    out,
    window,
    block,
    longest,
    heads,
    keys_row,
    keys_head,
    values_row,
    values_head,
    scale,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HEAD: tl.constexpr,
    MASK_TILES: tl.constexpr,
    ASKED_TILES: tl.constexpr,
    LAST: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """packed [rows, window + block, 3, heads, HEAD]: the newest tokens of each row, up to `length` [rows], and masks.

    Caches [rows, heads, longest, HEAD], whose slots are positions; out [rows, window + block, heads, HEAD] or, of the
    LAST layer, the masks' alone, [rows, block, heads, HEAD]. The first MASK_TILES programs of a head have masks,
    and the first ASKED_TILES have queries: those behind them do no more than write.
    """
    begin(OVERLAP)
    wait(OVERLAP)  # there is no weight to read
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    tile = tl.program_id(2)
    of_mask = tile < MASK_TILES
    begun = tl.load(length + row).to(tl.int32)
    first = tl.maximum(begun - window, 0)
    width = heads * HEAD
    d = tl.arange(0, HEAD)
    i = tl.where(of_mask, tile, tile - MASK_TILES) * QUERIES + tl.arange(0, QUERIES)  # of the masks, or of the tokens
    asked = (i < tl.where(of_mask, block, window))[:, None]
    given = packed + row * (window + block) * (3 * width) + head * HEAD
    old_keys = keys + row * keys_row + head * keys_head
    old_values = values + row * values_row + head * values_head
    at = i + tl.where(of_mask, window, 0)
    own = given + at[:, None] * (3 * width) + d[None, :]
    if tile >= MASK_TILES:
        room = asked & (first + i < longest)[:, None]
        kept = (first + i)[:, None] * HEAD + d[None, :]
        tl.store(old_keys + kept, tl.load(own + width, mask=asked, other=0.0), mask=room)
        tl.store(old_values + kept, tl.load(own + 2 * width, mask=asked, other=0.0), mask=room)
    if tile < ASKED_TILES:
        j = tl.arange(0, KEYS)
        k, v, hidden = _seen(j, block, window, begun, i, of_mask, old_keys, old_values, given, width, HEAD)
        q = tl.load(own, mask=asked, other=0.0)
        top = tl.full((QUERIES,), float("-inf"), tl.float32)
        total = tl.zeros((QUERIES,), tl.float32)
        mixed = tl.zeros((QUERIES, HEAD), tl.float32)
        top, total, mixed = _fold(q, k, v, hidden, top, total, mixed, scale)
        for start in range(KEYS, block + first + window, KEYS):
            k, v, hidden = _seen(start + j, block, window, begun, i, of_mask, old_keys, old_values, given, width, HEAD)
            top, total, mixed = _fold(q, k, v, hidden, top, total, mixed, scale)
        mixed = mixed / total[:, None]
        place = row * block + i if LAST else row * (window + block) + at
        tl.store(out + place[:, None] * width + head * HEAD + d[None, :], mixed.to(q.dtype), mask=asked)


def extend(packed: Tensor, length: Tensor, window: int, keys: Tensor, values: Tensor, last: bool) -> Tensor:
    """packed [rows, window + block, 3 * width], contiguous: the newest tokens, up to length [rows], and masks; the
    tokens' keys and values go into the caches [rows, heads, longest, head]. -> mixed values [rows, window + block,
    width], or of the `last` layer the masks' alone"""
    rows, step, width = packed.shape[0], packed.shape[1], packed.shape[2] // 3
    heads, longest, head = keys.shape[1:]
    block = step - window
    out = packed.new_empty((rows, block if last else step, width))
    of_masks, of_tokens = triton.cdiv(block, _QUERIES), triton.cdiv(window, _QUERIES)
    _extend_canvas[(rows, heads, of_masks + of_tokens)](
        *(packed, length, keys, values, out),
        *(window, block, longest, heads),
        *(*keys.stride()[:2], *values.stride()[:2], head**-0.5 * _LOG2_E),
        QUERIES=_QUERIES,
        KEYS=WALK.keys,
        HEAD=head,
        MASK_TILES=of_masks,
        ASKED_TILES=of_masks if last else of_masks + of_tokens,
        LAST=last,
        num_warps=WALK.warps,
        num_stages=1,
        **launching(packed),
    )
    return out
