"""Counting and looking up: places, and what stands there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from longstride.ops.size import Size, handle_of
from longstride.ops.trace import INTEGER, Value, lifted, tracer_of


def arange(length: Any, like: Tensor) -> Tensor:
    """[length] 0, 1, 2, ..., beside `like`"""
    tracer = tracer_of(like)
    if tracer is None:
        return torch.arange(length, device=like.device)
    if isinstance(length, int):
        return tracer.once(("arange", length), lambda: tracer.constant(torch.arange(length)))  # type: ignore[no-any-return]
    made = tracer.builder.arange(handle_of(tracer.builder, length))
    return tracer.once(("arange", id(length)), lambda: tracer.value(made, INTEGER, [length]), length)  # type: ignore[no-any-return]


def slots_from(start: Tensor, step: Any) -> Tensor:
    """[rows] -> [rows, step], the slots from each row's own start on: start, start + 1, ..."""
    slots = start[:, None] + arange(step, start)
    tracer = tracer_of(slots)
    if tracer is not None:
        tracer.once(("start", id(slots)), lambda: start, slots)
    return slots


def start_of(slots: Value) -> Value:
    """[rows] the first of slots [rows, step] that lie side by side"""
    return slots.tracer.once(("start", id(slots)), lambda: slots[:, 0], slots)  # type: ignore[no-any-return]


def take(x: Tensor, index: Tensor) -> Tensor:
    """x [rows, n, ...] and places [rows, k] -> what stands there [rows, k, ...]"""
    tracer = tracer_of(x, index)
    if tracer is None:
        shape = index.shape + (1,) * (x.dim() - 2)
        return x.gather(1, index.view(shape).expand(*index.shape, *x.shape[2:]))
    values, places = lifted(tracer, x), lifted(tracer, index)
    builder = tracer.builder
    handle = builder.node("GatherND", values.handle, builder.column(places.handle), batch_dims=1)
    return tracer.value(handle, values.dtype, [*places.sizes, *values.sizes[2:]])  # type: ignore[return-value]


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """table [n] and places [...] -> what stands there [...]"""
    tracer = tracer_of(table, index)
    if tracer is None:
        return table[index]
    values, places = lifted(tracer, table), lifted(tracer, index)
    handle = tracer.builder.node("Gather", values.handle, places.handle, axis=0)
    return tracer.value(handle, values.dtype, places.sizes)  # type: ignore[return-value]


def by_position(function: Callable[[Tensor], Tensor], length: Any, count: int, like: Tensor) -> Tensor:
    """What a function makes of each position 0, 1, ... by itself -> [length, n]

    A graph, whose weights stay as they are, is given it for all `count` positions there are, once and for all.
    """
    tracer = tracer_of(like)
    if tracer is None:
        return function(arange(length, like))
    with torch.no_grad():
        return lifted(tracer, function(torch.arange(count)))[:length]  # type: ignore[return-value]


def length(number: Any, most: int | None = None) -> Any:
    """A number, or a tensor [1] that holds one, of at most `most`, to be used as a length"""
    if isinstance(number, Value):
        return Size(number.tracer.builder, lambda: number.handle, most)
    return int(number) if isinstance(number, Tensor) else number


def full(lengths: Sequence[Any], value: int, like: Tensor) -> Tensor:
    """[*lengths] integers, all the same, beside `like`"""
    tracer = tracer_of(like)
    if tracer is None:
        return torch.full(tuple(lengths), value, dtype=torch.int64, device=like.device)
    return lifted(tracer, torch.tensor([value])).expand(*lengths)  # type: ignore[no-any-return]


def repeated(vector: Tensor, like: Tensor, *lengths: Any) -> Tensor:
    """[width] -> [*lengths, width], beside `like`"""
    tracer = tracer_of(like)
    return (vector if tracer is None else lifted(tracer, vector)).expand(*lengths, -1)


def largest(x: Tensor) -> Any:
    """The largest of integers [rows], to be used as a length"""
    tracer = tracer_of(x)
    if tracer is None:
        return int(x.max())
    builder, handle = tracer.builder, lifted(tracer, x).handle
    return Size(builder, lambda: builder.node("ReduceMax", handle, builder.integers(0), keepdims=1))
