"""A Triton kernel for a source's attention to itself where it is encoded: all slots see all that are no padding.

A program has up to 16 queries of one head of one row, and reads queries, keys and values where one product left them;
libraries take several kernels for the same, since they want masks in a form of their own. It walks over keys as steps
do (`decode_attention_kernels`), so many at a time from the first on, and what is padding adds exact zeros: a row's
numbers depend neither on the other rows nor on how far it is padded.

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

from longstride.nn.decode_attention_kernels import _fold
from longstride.nn.overlap import launching
from longstride.nn.overlap_kernels import begin, wait

_LOG2_E = math.log2(math.e)
_QUERIES, _KEYS, _WARPS = 16, 64, 4
"""Bits depend on how many keys are taken at a time, so all calls share it."""


@triton.jit
def _seen(first, given, visible, length, width, KEYS: tl.constexpr, HEAD: tl.constexpr, PADDED: tl.constexpr):
    """Keys, on their side, values, and what is added to scores, of KEYS slots from `first` on; 0 of hidden ones."""
    j = first + tl.arange(0, KEYS)
    d = tl.arange(0, HEAD)
    real = j < length
    if PADDED:
        real = real & (tl.load(visible + j, mask=real, other=0) != 0)
    place = j * (3 * width)
    k = tl.load(given + width + place[None, :] + d[:, None], mask=real[None, :], other=0.0)
    v = tl.load(given + 2 * width + place[:, None] + d[None, :], mask=real[:, None], other=0.0)
    return k, v, tl.where(real, 0.0, float("-inf"))[None, :]


@triton.jit(do_not_specialize=("length", "visible_row"))
def _source(
    packed,
    visible,
    out,
    length,
    visible_row,
    heads,
    scale,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HEAD: tl.constexpr,
    PADDED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """packed [rows, length, 3, heads, HEAD] -> out [rows, length, heads, HEAD]; with `PADDED`, visible [rows, length]
    is 0 on what nobody sees, which may hold anything."""
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
    k, v, hidden = _seen(0, given, visible, length, width, KEYS, HEAD, PADDED)
    q = tl.load(given + i[:, None] * (3 * width) + d[None, :], mask=asked, other=0.0)
    top = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    mixed = tl.zeros((QUERIES, HEAD), tl.float32)
    top, total, mixed = _fold(q, k, v, hidden, top, total, mixed, scale)
    for first in range(KEYS, length, KEYS):
        k, v, hidden = _seen(first, given, visible, length, width, KEYS, HEAD, PADDED)
        top, total, mixed = _fold(q, k, v, hidden, top, total, mixed, scale)
    mixed = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(out + row * length * width + i[:, None] * width + head * HEAD + d[None, :], mixed.to(q.dtype), mask=asked)


def attended(packed: Tensor, heads: int, visible: Tensor | None) -> Tensor:
    """packed [rows, length, 3 * width], contiguous; visible [rows, length] bool, its last dimension dense, None where
    nothing is padded. -> [rows, length, width]"""
    rows, length, width = packed.shape[0], packed.shape[1], packed.shape[2] // 3
    head = width // heads
    out = packed.new_empty((rows, length, width))
    shown = packed if visible is None else visible.view(torch.uint8)
    _source[(rows, heads, triton.cdiv(length, _QUERIES))](
        *(packed, shown, out, length, shown.stride(0), heads, head**-0.5 * _LOG2_E),
        QUERIES=_QUERIES,
        KEYS=_KEYS,
        HEAD=head,
        PADDED=visible is not None,
        num_warps=_WARPS,
        num_stages=1,
        **launching(packed),
    )
    return out
