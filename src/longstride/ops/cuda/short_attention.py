"""Attention over short sequences as operators that autograd and torch.compile know; off CUDA nobody calls them.

The kernels lie in `short_attention_kernels`, which is imported at the first call, because it needs Triton. A compiled
graph sees an operator and no tile sizes: one graph serves all lengths. Dropout is drawn from a seed that comes from
PyTorch's own generator, so that a restored generator gives the same run again.
"""

from __future__ import annotations

import torch
from torch import Tensor

LONGEST = 128
"""Queries and keys that one tile holds at most."""
HEADS = (32, 64)
"""Widths of a head that the kernels are written for."""
DTYPES = (torch.bfloat16, torch.float16)
CONDITION = f"training; heads of 32 or 64, scaled scores, up to {LONGEST} queries and keys"


def supports_self(
    packed: Tensor,
    heads: int,
    mask: Tensor | None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> bool:
    """Whether :func:`self_attention` can take the place of the library's kernels."""
    _, length, width = packed.shape
    return scale is None and _supports(packed, width // 3 // heads, length, length, mask)


def supports_cross(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    heads: int,
    dropout: float = 0.0,
    scale: float | None = None,
) -> bool:
    """Whether :func:`cross_attention` can."""
    return scale is None and _supports(queries, keys.shape[3], queries.shape[1], keys.shape[2], mask)


def _supports(projected: Tensor, head: int, queries: int, keys: int, mask: Tensor | None) -> bool:
    """`projected` stands for all operands; `mask` is boolean and broadcasts to [rows, heads, queries, keys]."""
    if projected.dtype not in DTYPES or not torch.is_grad_enabled():
        return False
    if head not in HEADS or max(queries, keys) > LONGEST or projected.shape[0] == 0:
        return False
    return mask is None or _readable(mask, projected.shape[0], queries, keys)


def _readable(mask: Tensor, rows: int, queries: int, keys: int) -> bool:
    """Whether it is boolean and [rows or 1, 1, queries or 1, keys]."""
    if mask.dtype != torch.bool or mask.dim() != 4 or mask.shape[1] != 1 or mask.shape[3] != keys:
        return False
    return (mask.shape[0] == 1 or mask.shape[0] == rows) and (mask.shape[2] == 1 or mask.shape[2] == queries)


def self_attention(
    packed: Tensor,
    heads: int,
    mask: Tensor | None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """ops.self_attention"""
    visible = None if mask is None else mask[:, 0]
    mixed: Tensor = _self_attention(packed, visible, _seed(packed, dropout), heads, causal, dropout)[0]
    return mixed


def cross_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    heads: int,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """ops.attention"""
    visible = None if mask is None else mask[:, 0]
    mixed: Tensor = _cross_attention(queries, keys, values, visible, _seed(queries, dropout), dropout)[0]
    return mixed


def _seed(like: Tensor, dropout: float) -> Tensor | None:
    return torch.randint(0, 2**31 - 1, (1,), device=like.device) if dropout else None


# --- one sequence over itself ----------------------------------------------------------------------------------------


@torch.library.custom_op(
    "longstride::short_self_attention",
    mutates_args=(),
    schema="(Tensor packed, Tensor? visible, Tensor? seed, int heads, bool causal, float dropout) -> (Tensor, Tensor)",
)
def _self_attention(
    packed: Tensor, visible: Tensor | None, seed: Tensor | None, heads: int, causal: bool, dropout: float
) -> tuple[Tensor, Tensor]:
    from longstride.ops.cuda import short_attention_kernels as kernels

    q, k, v = _thirds(packed.contiguous(), heads)
    return kernels.forward(q, k, v, _dense(visible), seed, causal, dropout)


@_self_attention.register_fake
def _(packed: Tensor, visible: Tensor | None, seed: Tensor | None, heads: int, *_: object) -> tuple[Tensor, Tensor]:
    rows, length, width = packed.shape
    normaliser = packed.new_empty((rows, heads, length), dtype=torch.float32)
    return packed.new_empty((rows, length, width // 3)), normaliser


@torch.library.custom_op(
    "longstride::short_self_attention_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor packed, Tensor normaliser, Tensor? visible, Tensor? seed, int heads, bool causal, "
    "float dropout) -> Tensor",
)
def _self_attention_backward(
    grad: Tensor,
    packed: Tensor,
    normaliser: Tensor,
    visible: Tensor | None,
    seed: Tensor | None,
    heads: int,
    causal: bool,
    dropout: float,
) -> Tensor:
    from longstride.ops.cuda import short_attention_kernels as kernels

    packed = packed.contiguous()
    found = torch.empty_like(packed)
    q, k, v = _thirds(packed, heads)
    into = _thirds(found, heads)
    kernels.backward(grad.contiguous(), q, k, v, normaliser, _dense(visible), seed, causal, dropout, into)
    return found


@_self_attention_backward.register_fake
def _(grad: Tensor, packed: Tensor, *_: object) -> Tensor:
    return packed.new_empty(packed.shape)


def _keep_for_self(ctx, inputs, output):  # type: ignore[no-untyped-def]
    packed, visible, seed, ctx.heads, ctx.causal, ctx.dropout = inputs
    ctx.save_for_backward(packed, output[1], visible, seed)
    ctx.set_materialize_grads(False)


def _self_gradients(ctx, grad, _):  # type: ignore[no-untyped-def]
    if grad is None:
        return (None,) * 6
    found = _self_attention_backward(grad, *ctx.saved_tensors, ctx.heads, ctx.causal, ctx.dropout)
    return found, None, None, None, None, None


_self_attention.register_autograd(_self_gradients, setup_context=_keep_for_self)


# --- over another sequence -------------------------------------------------------------------------------------------


@torch.library.custom_op(
    "longstride::short_cross_attention",
    mutates_args=(),
    schema="(Tensor queries, Tensor keys, Tensor values, Tensor? visible, Tensor? seed, float dropout) -> "
    "(Tensor, Tensor)",
)
def _cross_attention(
    queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None, seed: Tensor | None, dropout: float
) -> tuple[Tensor, Tensor]:
    from longstride.ops.cuda import short_attention_kernels as kernels

    k, v = _by_token(keys), _by_token(values)
    q = queries.contiguous().view(*queries.shape[:2], k.shape[2], k.shape[3])
    return kernels.forward(q, k, v, _dense(visible), seed, False, dropout)


@_cross_attention.register_fake
def _(queries: Tensor, keys: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    rows, length = queries.shape[:2]
    return queries.new_empty(queries.shape), queries.new_empty((rows, keys.shape[1], length), dtype=torch.float32)


@torch.library.custom_op(
    "longstride::short_cross_attention_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor queries, Tensor keys, Tensor values, Tensor normaliser, Tensor? visible, Tensor? seed,"
    " float dropout) -> (Tensor, Tensor, Tensor)",
)
def _cross_attention_backward(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    normaliser: Tensor,
    visible: Tensor | None,
    seed: Tensor | None,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    from longstride.ops.cuda import short_attention_kernels as kernels

    k, v = _by_token(keys), _by_token(values)
    q = queries.contiguous().view(*queries.shape[:2], k.shape[2], k.shape[3])
    dq, dk, dv = (tensor.new_empty(tensor.shape) for tensor in (q, k, v))
    kernels.backward(grad.contiguous(), q, k, v, normaliser, _dense(visible), seed, False, dropout, (dq, dk, dv))
    return dq.view(queries.shape), dk, dv


@_cross_attention_backward.register_fake
def _(grad: Tensor, queries: Tensor, keys: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    rows, heads, source, head = keys.shape
    by_token = (rows, source, heads, head)
    return queries.new_empty(queries.shape), keys.new_empty(by_token), keys.new_empty(by_token)


def _keep_for_cross(ctx, inputs, output):  # type: ignore[no-untyped-def]
    queries, keys, values, visible, seed, ctx.dropout = inputs
    ctx.save_for_backward(queries, keys, values, output[1], visible, seed)
    ctx.set_materialize_grads(False)


def _cross_gradients(ctx, grad, _):  # type: ignore[no-untyped-def]
    if grad is None:
        return (None,) * 6
    dq, dk, dv = _cross_attention_backward(grad, *ctx.saved_tensors, ctx.dropout)
    return dq, dk.transpose(1, 2), dv.transpose(1, 2), None, None, None


_cross_attention.register_autograd(_cross_gradients, setup_context=_keep_for_cross)


# --- how operands lie ------------------------------------------------------------------------------------------------


def _thirds(packed: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """[rows, length, 3 * width] -> three views [rows, length, heads, head]"""
    rows, length, width = packed.shape
    q, k, v = packed.view(rows, length, 3, heads, width // (3 * heads)).unbind(2)
    return q, k, v


def _by_token(split: Tensor) -> Tensor:
    """[rows, heads, length, head] -> [rows, length, heads, head], copied only if it does not lie as kernels want it."""
    tokens = split.transpose(1, 2)
    row, step, side, one = tokens.stride()
    # Multiples of 16 are read in vectors; others would work, but be compiled anew.
    dense = one == 1 and side == tokens.shape[3] and step % 16 == 0 and row % 16 == 0
    return tokens if dense else tokens.contiguous()


def _dense(visible: Tensor | None) -> Tensor | None:
    """A mask [rows or 1, queries or 1, keys] as kernels want it."""
    return None if visible is None else visible.contiguous()
