"""What layers are made of beside attention: products with their activation, norms, embeddings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.ops.indexing import arange, slots_from
from longstride.ops.kernels import operation
from longstride.ops.trace import lifted, tracer_of

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


@operation
def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None, added: Tensor | None = None
) -> Tensor:
    """x [..., inputs] by weight [outputs, inputs], plus bias [outputs], activated, plus `added` -> [..., outputs]"""
    made = F.linear(x, weight, bias)
    made = made if activation is None else ACTIVATIONS[activation](made)
    return made if added is None else added + made


@operation
def row_product(x: Tensor, weight: Tensor, bias: Tensor, added: Tensor) -> Tensor:
    """x [..., inputs] by weight [heads * width, inputs], plus bias and, to each head's part, added [..., width]
    -> [..., heads, width], for what nobody verifies by: a row's bits may depend on how many there are"""
    made = F.linear(x, weight, bias).view(*added.shape[:-1], -1, added.shape[-1])
    return added[..., None, :] + made


def listed(x: Tensor, weight: Tensor, ids: Tensor) -> Tensor:
    """x [rows, slots, inputs] by those outputs of weight [outputs, inputs] that each row lists in ids [rows, words]
    -> [rows, slots, words]; for what nobody verifies by: bits may be others than those of `linear`"""
    tracer = tracer_of(x, ids)
    if tracer is None:
        return (weight[ids] @ x.transpose(1, 2)).transpose(1, 2)
    given, chosen = lifted(tracer, x), lifted(tracer, ids)
    handle = tracer.builder.listed(given.handle, weight, chosen.handle)
    return tracer.value(handle, given.dtype, [*given.sizes[:2], chosen.sizes[1]])  # type: ignore[return-value]


def norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """Layer norm over the last dimension or, without a bias, division by the root mean square; in the type of x

    Autocast would hand on float32 and so double what every residual sum reads and writes; the statistics are taken in
    float32 inside the kernel either way.
    """
    with torch.autocast(x.device.type, enabled=False):
        if bias is None:
            return F.rms_norm(x, weight.shape, weight.to(x.dtype), eps)
        return F.layer_norm(x, weight.shape, weight.to(x.dtype), bias.to(x.dtype), eps)


@operation
def add_norm(x: Tensor, added: Tensor, weight: Tensor, bias: Tensor | None, eps: float, dropout: float = 0.0) -> Tensor:
    """norm(x + dropout(added)), [..., width]"""
    return norm(x + (F.dropout(added, dropout) if dropout else added), weight, bias, eps)


@operation
def embed(
    ids: Tensor,
    start: Tensor | None,
    tokens: Tensor,
    scale: float,
    positions: tuple[Tensor, int] | None,
    last: int,
    depth: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """What the first layer reads of ids [rows, step] -> [rows, step, width], and their slots [rows, step] from start
    [rows] on, or [step] from 0

    positions: a table of position embeddings, and which row is position 0's, or None. A draft may run past the `last`
    position there is: no such token is ever committed. Where it is a tree, a slot's position lies `depth` [rows, step]
    behind the start.
    """
    slots = arange(ids.shape[1], ids) if start is None else slots_from(start, ids.shape[1])
    embedded = F.embedding(ids, tokens)
    if positions is None:
        return embedded * scale, slots
    table, first = positions
    place = slots if depth is None or start is None else depth + start[:, None]
    place = place if start is None else place.clamp(max=last)
    position = F.embedding(place + first if first else place, table)
    if start is None:
        return embedded * scale + position, slots
    return torch.add(position, embedded, alpha=scale), slots
