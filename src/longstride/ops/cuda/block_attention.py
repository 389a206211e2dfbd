"""A Triton kernel for the attention of steps whose slots see each other, and all that is before them.

The relative of `decode_attention`, whose slots see no later ones: the same tiles, the same walk over the keys,
the same rule about what is read where. It writes the step's keys and values into the cache too.

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
def _seen(first, start, end, old_keys, old_values, given, width, KEYS: tl.constexpr, HEAD: tl.constexpr):
    """Keys, on their side, and values of KEYS slots from `first` on: old ones from the cache, new ones as given; and
    what is added to scores, nothing or, from `end` on, -inf."""
    j = first + tl.arange(0, KEYS)
    d = tl.arange(0, HEAD)
    old, real = j < start, j < end
    in_cache, in_step = j * HEAD, (j - start) * (3 * width)
    k_from = tl.where(old, old_keys + in_cache, given + width + in_step)
    v_from = tl.where(old, old_values + in_cache, given + 2 * width + in_step)
    k = tl.load(k_from[None, :] + d[:, None], mask=real[None, :], other=0.0)
    v = tl.load(v_from[:, None] + d[None, :], mask=real[:, None], other=0.0)
    return k, v, tl.where(real, 0.0, float("-inf"))[None, :]


@triton.jit(do_not_specialize=("step", "longest", "slots_row"))
def _extend_whole(
    packed,
    slots,
    keys,
    values,
    out,
    step,
    longest,
    slots_row,
    heads,
    keys_row,
    keys_head,
    values_row,
    values_head,
    scale,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HEAD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """packed [rows, step, 3, heads, HEAD] goes to slots from each row's first on; each sees all up to the last of them.

    Caches [rows, heads, longest, HEAD]; out [rows, step, heads, HEAD].
    """
    begin(OVERLAP)
    wait(OVERLAP)  # there is no weight to read
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    start = tl.load(slots + row * slots_row).to(tl.int32)
    end = start + step
    width = heads * HEAD
    i = tl.program_id(2) * QUERIES + tl.arange(0, QUERIES)
    d = tl.arange(0, HEAD)
    asked = (i < step)[:, None]
    given = packed + row * step * (3 * width) + head * HEAD
    old_keys = keys + row * keys_row + head * keys_head
    old_values = values + row * values_row + head * values_head
    k, v, hidden = _seen(0, start, end, old_keys, old_values, given, width, KEYS, HEAD)
    own = given + i[:, None] * (3 * width) + d[None, :]
    q = tl.load(own, mask=asked, other=0.0)
    own_k = tl.load(own + width, mask=asked, other=0.0)
    own_v = tl.load(own + 2 * width, mask=asked, other=0.0)
    room = asked & (start + i < longest)[:, None]
    place = (start + i)[:, None] * HEAD + d[None, :]
    tl.store(old_keys + place, own_k, mask=room)
    tl.store(old_values + place, own_v, mask=room)

    top = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    mixed = tl.zeros((QUERIES, HEAD), tl.float32)
    top, total, mixed = _fold(q, k, v, hidden, top, total, mixed, scale)
    for first in range(KEYS, end, KEYS):
        k, v, hidden = _seen(first, start, end, old_keys, old_values, given, width, KEYS, HEAD)
        top, total, mixed = _fold(q, k, v, hidden, top, total, mixed, scale)
    mixed = mixed / total[:, None]
    tl.store(out + row * step * width + i[:, None] * width + head * HEAD + d[None, :], mixed.to(q.dtype), mask=asked)


def extend(packed: Tensor, slots: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """packed [rows, step, 3 * width], contiguous, goes to slots [rows, step], each row's side by side, of the caches
    [rows, heads, longest, head], which are written. -> mixed values [rows, step, width]"""
    rows, step, width = packed.shape[0], packed.shape[1], packed.shape[2] // 3
    heads, longest, head = keys.shape[1:]
    out = packed.new_empty((rows, step, width))
    _extend_whole[(rows, heads, triton.cdiv(step, _QUERIES))](
        *(packed, slots, keys, values, out),
        *(step, longest, slots.stride(0), heads),
        *(*keys.stride()[:2], *values.stride()[:2], head**-0.5 * _LOG2_E),
        QUERIES=_QUERIES,
        KEYS=WALK.keys,
        HEAD=head,
        num_warps=WALK.warps,
        num_stages=1,
        **launching(packed),
    )
    return out


def block_causal(packed, keys, values, slots, bias, heads, indirection=None, asked=None, scale=None) -> Tensor:
    """ops.cached_attention of steps whose slots see each other and all that is before them"""
    mixed = extend(packed.contiguous(), slots, keys, values)
    return mixed if asked is None else mixed[:, asked[0] : asked[1]]
