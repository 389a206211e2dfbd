"""A Triton kernel for all that lies between a decoder layer's two attentions: sum and norm, queries, and the source.

One kernel instead of two (`decode_product_kernels`, `decode_attention_kernels`), from whose parts it is made: a program
has up to 16 slots of one head of one row, makes their queries from that head's share of the weight, and reads the
source with them. A slot's numbers depend on that slot alone. So few programs read much of the weight each, which takes
long unless it is asked for while the kernel before ends (`overlap`).

Imports Triton, so only what has a CUDA device imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from longstride.nn.decode_attention_kernels import _LOG2_E, _QUERIES, WALK, _fold, _keys
from longstride.nn.decode_product_kernels import WALK as PRODUCTS
from longstride.nn.decode_product_kernels import Norm
from longstride.nn.overlap import launching
from longstride.nn.overlap_kernels import begin, wait


@triton.jit(do_not_specialize=("queries", "count", "hidden_row"))
def _ask(
    x,
    added,
    gain,
    shift,
    normed,
    weight,
    bias,
    keys,
    values,
    hidden,
    out,
    queries,
    count,
    keys_row,
    keys_head,
    keys_step,
    values_row,
    values_head,
    values_step,
    hidden_row,
    epsilon,
    scale,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HEAD: tl.constexpr,
    WARPS: tl.constexpr,
    SHARE: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """x and added [rows, queries, width]; weight [width, width] and bias make queries of norm(x + added), which goes to
    `normed`; keys and values [rows, heads, count, HEAD]; hidden [rows, count] is added to scores. out like x.

    Values must be numbers, also those that nobody sees: nothing waits to know which these are.
    """
    begin(OVERLAP)
    WIDTH: tl.constexpr = WARPS * SHARE
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    i = tl.program_id(2) * QUERIES + tl.arange(0, QUERIES)
    d = tl.arange(0, HEAD)
    part = tl.arange(0, WARPS)[:, None, None] * SHARE
    k = tl.arange(0, SHARE)
    column = part + k[None, None, :]
    weight_from = weight + (head * HEAD + d)[None, None, :] * WIDTH + part + k[None, :, None]
    stripe = tl.load(weight_from)
    after = tl.load(bias + head * HEAD + d).to(tl.float32)
    factor = tl.load(gain + column).to(tl.float32)
    summand = tl.load(shift + column).to(tl.float32)
    wait(OVERLAP)

    asked = i < queries
    real = asked[None, :, None]
    place = (row * queries + i)[None, :, None] * WIDTH + column
    some = tl.load(x + place, mask=real, other=0.0)
    both = some.to(tl.float32) + tl.load(added + place, mask=real, other=0.0).to(tl.float32)
    keys += row * keys_row + head * keys_head
    values += row * values_row + head * values_head
    hidden += row * hidden_row
    met, sight = _keys(0, count, i, queries, keys, hidden, keys_step, 0, KEYS, HEAD, False)
    j = tl.arange(0, KEYS)
    value_from = values + j[:, None] * values_step + d[None, :]
    v = tl.load(value_from, mask=(j < count)[:, None], other=0.0)
    both = both.to(some.dtype).to(tl.float32)  # rounded as it is where the sum has a kernel of its own
    mean = tl.sum(tl.sum(both, 2), 0) / WIDTH
    apart = both - mean[None, :, None]
    spread = tl.sum(tl.sum(apart * apart, 2), 0) / WIDTH
    some = (apart * (1.0 / tl.sqrt(spread + epsilon))[None, :, None] * factor + summand).to(some.dtype)
    tl.store(normed + place, some, mask=real & (head == 0))
    q = tl.sum(tl.dot(some, stripe, input_precision="ieee"), 0) + after[None, :]
    q = q.to(some.dtype)

    top = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    mixed = tl.zeros((QUERIES, HEAD), tl.float32)
    top, total, mixed = _fold(q, met, v, sight[None, :], top, total, mixed, scale)
    for first in range(KEYS, count, KEYS):
        met, sight = _keys(first, count, i, queries, keys, hidden, keys_step, 0, KEYS, HEAD, False)
        v = tl.load(value_from + first * values_step, mask=(first + j < count)[:, None], other=0.0)
        top, total, mixed = _fold(q, met, v, sight[None, :], top, total, mixed, scale)
    mixed = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
    found = out + (row * queries + i)[:, None] * WIDTH + head * HEAD + d[None, :]
    tl.store(found, mixed.to(q.dtype), mask=asked[:, None])


def ask(
    x: Tensor, norm: Norm, weight: Tensor, bias: Tensor, keys: Tensor, values: Tensor, hidden: Tensor
) -> tuple[Tensor, Tensor]:
    """x [rows, queries, width], contiguous, and what goes before; weight [width, width] and bias [width] of queries;
    keys and values [rows, heads, count, head], the last dimension dense and all of them numbers; hidden [rows, 1, 1,
    count] is added to scores. -> the norm of the sum, and mixed values, both [rows, queries, width]"""
    rows, queries, width = x.shape
    heads, count, head = keys.shape[1:]
    hidden = hidden.expand(rows, 1, 1, count)
    warps, share = PRODUCTS.split(width, whole=True)
    normed, out = torch.empty_like(x), torch.empty_like(x)
    _ask[(rows, heads, triton.cdiv(queries, _QUERIES))](
        *(x, norm.added, norm.gain, norm.shift, normed, weight, bias, keys, values, hidden, out),
        *(queries, count, *keys.stride()[:3], *values.stride()[:3], hidden.stride(0)),
        *(norm.epsilon, head**-0.5 * _LOG2_E),
        QUERIES=_QUERIES,
        KEYS=WALK.keys,
        HEAD=head,
        WARPS=warps,
        SHARE=share,
        num_warps=warps,
        num_stages=1,
        **launching(x),
    )
    return normed, out
