"""A Triton kernel for a source's attention to itself where it is encoded: all slots see all that are no padding.

A program has up to 16 queries of one head of one row, and reads queries, keys and values where one product left them;
libraries take several kernels for the same, since they want masks in a form of their own. A row's numbers depend
neither on the other rows nor on how far it is padded, because it goes through the same instructions on the same numbers
whatever surrounds it:

- It walks over keys as steps do (`decode_attention`), so many at a time from the first on.
- What is hidden within a tile has the score -inf and the value 0, as what lies beyond the row's end has.
- A tile in which the row sees nothing is left out, as one beyond its end is: nobody has to trust that folding in zeros
  changes no bit.
- One kernel is compiled for sources with padding and without. There were two, and since one of them read a mask of
  bytes, the compiler laid the operands of its products out otherwise, so that sums went in another order.

Imports Triton, so only what has a CUDA device imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from longstride.ops.cuda.decode_attention import _fold
from longstride.ops.cuda.overlap import begin, launching, wait

_LOG2_E = math.log2(math.e)
_QUERIES, _KEYS, _WARPS = 16, 64, 4
"""Bits depend on how many keys are taken at a time, so all calls share it."""


@triton.jit
def _shown(first, visible, length, padded, KEYS: tl.constexpr):
    """[KEYS] which slots from `first` on anybody sees."""
    j = first + tl.arange(0, KEYS)
    inside = j < length
    return inside & (tl.load(visible + j, mask=j < length * padded, other=1) != 0)


@triton.jit
def _walk(first, shown, length, given, width, q, top, total, mixed, scale, KEYS: tl.constexpr, HEAD: tl.constexpr):
    """What is known of the queries after KEYS slots from `first` on, of which some are shown."""
    j = first + tl.arange(0, KEYS)
    d = tl.arange(0, HEAD)
    place = j * (3 * width)
    # Hidden keys may be anything; values may not, since nothing times zero is zero for all.
    k = tl.load(given + width + place[None, :] + d[:, None], mask=(j < length)[None, :], other=0.0)
    v = tl.load(given + 2 * width + place[:, None] + d[None, :], mask=shown[:, None], other=0.0)
    hidden = tl.where(shown, 0.0, float("-inf"))[None, :]
    return _fold(q, k, v, hidden, top, total, mixed, scale)


@triton.jit(
    do_not_specialize=("visible", "length", "visible_row", "padded"), do_not_specialize_on_alignment=("visible",)
)
def _source(
    packed,
    visible,
    out,
    length,
    visible_row,
    padded,
    heads,
    scale,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HEAD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """packed [rows, length, 3, heads, HEAD] -> out [rows, length, heads, HEAD]; where `padded` is not 0, visible
    [rows, length] is 0 on what nobody sees, which may hold anything."""
    begin(OVERLAP)
    wait(OVERLAP)  # there is no weight to read
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    i = tl.program_id(2) * QUERIES + tl.arange(0, QUERIES)
    d = tl.arange(0, HEAD)
    width = heads * HEAD
    asked = (i < length)[:, None]
    given = packed + row * length * (3 * width) + head * HEAD
    visible += row * visible_row
    q = tl.load(given + i[:, None] * (3 * width) + d[None, :], mask=asked, other=0.0)
    top = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    mixed = tl.zeros((QUERIES, HEAD), tl.float32)
    shown = _shown(0, visible, length, padded, KEYS)
    top, total, mixed = _walk(0, shown, length, given, width, q, top, total, mixed, scale, KEYS, HEAD)
    for first in range(KEYS, length, KEYS):
        further = _shown(first, visible, length, padded, KEYS)
        if tl.max(further.to(tl.int32), 0) > 0:
            top, total, mixed = _walk(first, further, length, given, width, q, top, total, mixed, scale, KEYS, HEAD)
    mixed = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(out + row * length * width + i[:, None] * width + head * HEAD + d[None, :], mixed.to(q.dtype), mask=asked)


def attended(packed: Tensor, heads: int, visible: Tensor | None) -> Tensor:
    """packed [rows, length, 3 * width], contiguous; visible [rows, length] bool, its last dimension dense, None where
    nothing is padded. -> [rows, length, width]"""
    rows, length, width = packed.shape[0], packed.shape[1], packed.shape[2] // 3
    head = width // heads
    out = packed.new_empty((rows, length, width))
    shown = (packed if visible is None else visible).view(torch.uint8)  # without a mask they are not read
    of_mask = (0, 0) if visible is None else (visible.stride(0), 1)
    _source[(rows, heads, triton.cdiv(length, _QUERIES))](
        *(packed, shown, out, length, *of_mask, heads, head**-0.5 * _LOG2_E),
        QUERIES=_QUERIES,
        KEYS=_KEYS,
        HEAD=head,
        num_warps=_WARPS,
        num_stages=1,
        **launching(packed),
    )
    return out


def self_attention(packed, heads, mask, causal=False, dropout=0.0, scale=None) -> Tensor:
    """ops.self_attention; a row's numbers depend neither on the other rows nor on how far it is padded"""
    return attended(packed.contiguous(), heads, None if mask is None else mask[:, 0, 0])
