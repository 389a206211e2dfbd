"""Triton kernels of attention over short sequences: one program has all queries and keys of one head of one row.

General kernels walk over tiles of 128 queries and keys, of which a sentence of thirty tokens fills a twentieth. Here
the tile is the sentence, rounded up to 16, 32, 64 or 128; so the backward pass needs no second walk, no atomics and no
stored output, and a call reads and writes each value once. Lengths are plain arguments: a new length compiles nothing.

Imports Triton, so only what has a CUDA device imports this. Knows no autograd and no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_LOG2_E = tl.constexpr(math.log2(math.e))
_CHANCES = 1 << 16
"""Dropout compares 16 random bits: eight decisions come from one call of Philox, and its cost stays small."""
_WARPS = {16: 1, 32: 1, 64: 4, 128: 8}
"""By tile. One warp needs no barriers; four is what Hopper's own products of 64 rows want; fewer would spill."""
_NEITHER_LENGTH_NOR_FLAG = ("queries", "keys", "visible_row", "visible_step", "causal", "padded", "threshold")
"""What must not be compiled in: the rest is the same in every call of a model."""


@triton.jit
def _kept(seed, place, threshold, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    """[QUERIES, KEYS] bool: what dropout leaves; depends on seed, place, query and key, not on the tile's size."""
    query = tl.arange(0, QUERIES)[:, None]
    eight = tl.arange(0, KEYS // 8)[None, :]
    counter = (query * 16 + eight).to(tl.uint32)
    nothing = counter * 0
    a, b, c, d = tl.philox(seed, counter, nothing + place.to(tl.uint32), nothing, nothing, 7)
    words = tl.join(tl.join(a, b), tl.join(c, d))
    halves = tl.join(words & 0xFFFF, words >> 16)
    return tl.reshape(halves, (QUERIES, KEYS)).to(tl.int32) >= threshold


@triton.jit
def _hidden(visible, row, i, j, queries, keys, visible_row, visible_step, causal, padded, EACH: tl.constexpr):
    """[QUERIES, KEYS]: 0 where a query may look at a key, else -inf. `EACH`: the mask says it for each query by itself.

    Meant as what the product of queries and keys is added to: as a choice made after it, it would force the layout of
    a loaded mask on all that follows, which costs half as many instructions again.
    """
    real = j < keys
    start = visible + row * visible_row
    if EACH:
        inside = (i < queries)[:, None] & real[None, :]
        shown = tl.load(start + i[:, None] * visible_step + j[None, :], mask=inside, other=0) != 0
    else:
        shown = (tl.load(start + j, mask=j < keys * padded, other=1) != 0)[None, :]
    seen = shown & real[None, :] & ((causal == 0) | (j[None, :] <= i[:, None]))
    return tl.where(seen, 0.0, float("-inf"))


@triton.jit(do_not_specialize=_NEITHER_LENGTH_NOR_FLAG)
def _attention_forward(
    q,
    k,
    v,
    out,
    normaliser,
    visible,
    seed,
    queries,
    keys,
    heads,
    q_row,
    q_step,
    k_row,
    k_step,
    v_row,
    v_step,
    visible_row,
    visible_step,
    causal,
    padded,
    threshold,
    scale,
    boost,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HEAD: tl.constexpr,
    EACH: tl.constexpr,
    DROPOUT: tl.constexpr,
):
    """`normaliser` [rows, heads, queries] gets log2 of each query's sum of exponentials."""
    place = tl.program_id(0)
    row = (place // heads).to(tl.int64)
    head = place % heads
    i = tl.arange(0, QUERIES)
    j = tl.arange(0, KEYS)
    d = head * HEAD + tl.arange(0, HEAD)
    asked = (i < queries)[:, None]
    real = (j < keys)[:, None]
    q_tile = tl.load(q + row * q_row + i[:, None] * q_step + d[None, :], mask=asked, other=0.0)
    k_tile = tl.load(k + row * k_row + j[:, None] * k_step + d[None, :], mask=real, other=0.0)
    v_tile = tl.load(v + row * v_row + j[:, None] * v_step + d[None, :], mask=real, other=0.0)

    hidden = _hidden(visible, row, i, j, queries, keys, visible_row, visible_step, causal, padded, EACH)
    scores = tl.dot(q_tile, tl.trans(k_tile), hidden) * (scale * _LOG2_E)
    top = tl.max(scores, 1)
    top = tl.where(top == float("-inf"), 0.0, top)  # a query that sees nothing gets zeros, not NaN
    weights = tl.exp2(scores - top[:, None])
    total = tl.sum(weights, 1)
    total = tl.where(total == 0.0, 1.0, total)
    if DROPOUT:
        weights = tl.where(_kept(tl.load(seed), place, threshold, QUERIES, KEYS), weights, 0.0)
    mixed = tl.dot(weights.to(v_tile.dtype), v_tile) * (boost / total)[:, None]

    step = heads * HEAD
    tl.store(out + row * queries * step + i[:, None] * step + d[None, :], mixed.to(q_tile.dtype), mask=asked)
    tl.store(normaliser + place.to(tl.int64) * queries + i, top + tl.log2(total), mask=i < queries)


@triton.jit(do_not_specialize=_NEITHER_LENGTH_NOR_FLAG)
def _attention_backward(
    q,
    k,
    v,
    normaliser,
    visible,
    seed,
    grad,
    dq,
    dk,
    dv,
    queries,
    keys,
    heads,
    q_row,
    q_step,
    k_row,
    k_step,
    v_row,
    v_step,
    dq_row,
    dq_step,
    dk_row,
    dk_step,
    dv_row,
    dv_step,
    visible_row,
    visible_step,
    causal,
    padded,
    threshold,
    scale,
    boost,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HEAD: tl.constexpr,
    EACH: tl.constexpr,
    DROPOUT: tl.constexpr,
):
    """All three gradients of one head of one row. Rows of the tile beyond a length hold zeros and add nothing."""
    place = tl.program_id(0)
    row = (place // heads).to(tl.int64)
    head = place % heads
    i = tl.arange(0, QUERIES)
    j = tl.arange(0, KEYS)
    d = head * HEAD + tl.arange(0, HEAD)
    asked = (i < queries)[:, None]
    real = (j < keys)[:, None]
    step = heads * HEAD
    q_tile = tl.load(q + row * q_row + i[:, None] * q_step + d[None, :], mask=asked, other=0.0)
    k_tile = tl.load(k + row * k_row + j[:, None] * k_step + d[None, :], mask=real, other=0.0)
    v_tile = tl.load(v + row * v_row + j[:, None] * v_step + d[None, :], mask=real, other=0.0)
    grad_tile = tl.load(grad + row * queries * step + i[:, None] * step + d[None, :], mask=asked, other=0.0)
    norm = tl.load(normaliser + place.to(tl.int64) * queries + i, mask=i < queries, other=0.0)

    hidden = _hidden(visible, row, i, j, queries, keys, visible_row, visible_step, causal, padded, EACH)
    scores = tl.dot(q_tile, tl.trans(k_tile), hidden) * (scale * _LOG2_E)
    weights = tl.exp2(scores - norm[:, None])
    towards = tl.dot(grad_tile, tl.trans(v_tile))
    dropped = weights
    if DROPOUT:
        kept = _kept(tl.load(seed), place, threshold, QUERIES, KEYS)
        towards = tl.where(kept, towards * boost, 0.0)
        dropped = tl.where(kept, weights * boost, 0.0)
    dv_tile = tl.dot(tl.trans(dropped.to(q_tile.dtype)), grad_tile)
    tl.store(dv + row * dv_row + j[:, None] * dv_step + d[None, :], dv_tile.to(q_tile.dtype), mask=real)

    mean = tl.sum(weights * towards, 1)
    dscores = (weights * (towards - mean[:, None]) * scale).to(q_tile.dtype)
    dq_tile = tl.dot(dscores, k_tile)
    tl.store(dq + row * dq_row + i[:, None] * dq_step + d[None, :], dq_tile.to(q_tile.dtype), mask=asked)
    dk_tile = tl.dot(tl.trans(dscores), q_tile)
    tl.store(dk + row * dk_row + j[:, None] * dk_step + d[None, :], dk_tile.to(q_tile.dtype), mask=real)


def forward(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, seed: Tensor | None, causal: bool, dropout: float
) -> tuple[Tensor, Tensor]:
    """q [rows, queries, heads, head], k and v [rows, keys, heads, head], each a view with a token's heads side by side;
    visible [rows or 1, queries or 1, keys] bool, keys side by side; seed [1] int64, needed for dropout.
    -> mixed values [rows, queries, heads * head] and what `backward` wants to have again, [rows, heads, queries]."""
    rows, queries, heads, head = q.shape
    out = q.new_empty((rows, queries, heads * head))
    normaliser = torch.empty((rows, heads, queries), dtype=torch.float32, device=q.device)
    tile = tile_for(queries, k.shape[1])
    threshold, boost = _chance(dropout)
    _attention_forward[(rows * heads,)](
        *(q, k, v, out, normaliser),
        *(_bytes(visible, normaliser), seed if threshold else None),
        *(queries, k.shape[1], heads),
        *(*q.stride()[:2], *k.stride()[:2], *v.stride()[:2]),
        *_steps(visible),
        *(int(causal), int(visible is not None), threshold, head**-0.5, boost),
        QUERIES=tile,
        KEYS=tile,
        HEAD=head,
        EACH=visible is not None and visible.shape[1] > 1,
        DROPOUT=threshold > 0,
        num_warps=_WARPS[tile],
    )
    return out, normaliser


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    normaliser: Tensor,
    visible: Tensor | None,
    seed: Tensor | None,
    causal: bool,
    dropout: float,
    into: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Write the gradients of q, k and v `into` views like them; grad [rows, queries, heads * head], contiguous."""
    rows, queries, heads, head = q.shape
    dq, dk, dv = into
    tile = tile_for(queries, k.shape[1])
    threshold, boost = _chance(dropout)
    _attention_backward[(rows * heads,)](
        *(q, k, v, normaliser),
        *(_bytes(visible, normaliser), seed if threshold else None),
        *(grad, dq, dk, dv),
        *(queries, k.shape[1], heads),
        *(*q.stride()[:2], *k.stride()[:2], *v.stride()[:2]),
        *(*dq.stride()[:2], *dk.stride()[:2], *dv.stride()[:2]),
        *_steps(visible),
        *(int(causal), int(visible is not None), threshold, head**-0.5, boost),
        QUERIES=tile,
        KEYS=tile,
        HEAD=head,
        EACH=visible is not None and visible.shape[1] > 1,
        DROPOUT=threshold > 0,
        num_warps=_WARPS[tile],
    )


def tile_for(queries: int, keys: int) -> int:
    """The tile that both lengths fit in. One side for both: a few idle corners cost less than four times the kernels
    to compile."""
    return max(16, triton.next_power_of_2(max(queries, keys)))


def _chance(dropout: float) -> tuple[int, float]:
    """How many of the 16-bit numbers mean "dropped", and what the others' weights are multiplied by."""
    threshold = min(round(dropout * _CHANCES), _CHANCES - 1)
    return threshold, _CHANCES / (_CHANCES - threshold)


def _steps(visible: Tensor | None) -> tuple[int, int]:
    """How far apart a mask's rows and queries lie; one for all rows lies still."""
    if visible is None:
        return 0, 0
    row, step, _ = visible.stride()
    return (row if visible.shape[0] > 1 else 0), step


def _bytes(visible: Tensor | None, other: Tensor) -> Tensor:
    """The mask as bytes; without one, any bytes (they are not read), so that both calls share one kernel."""
    return (other if visible is None else visible).view(torch.uint8)
