"""The words of the vocabulary that rearrange: shapes, slices, places. See longstride.ops.arithmetic for the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from longstride.ops.size import Size, TraceError, handle_of, joined
from longstride.ops.trace import VOCABULARY, Value, axis_of, lifted, tracer_of, word

TO_THE_END = 2**62
"""Where a slice ends that has no end."""


def _shape(lengths: tuple[Any, ...]) -> list[Any]:
    return list(lengths[0]) if len(lengths) == 1 and isinstance(lengths[0], tuple | list) else list(lengths)


@word
def _reshape(x: Value, *lengths: Any) -> Value:
    wanted = _shape(lengths)
    builder = x.tracer.builder
    # A length that stays in its place needs no looking up.
    kept = [
        0 if place < x.dim() and isinstance(length, Size) and x.sizes[place] is length else length
        for place, length in enumerate(wanted)
    ]
    sizes = _filled(x.sizes, wanted)
    return x.tracer.value(builder.node("Reshape", x.handle, joined(builder, kept)), x.dtype, sizes)


def _filled(before: list[Any], wanted: list[Any]) -> list[Any]:
    """A shape's lengths, with what -1 stands for if that follows from those that are known"""
    sizes: list[Any] = [None if isinstance(length, int) and length == -1 else length for length in wanted]
    if None not in sizes:
        return sizes
    same = 0
    while same < min(len(before), len(sizes)) and before[same] is not None and before[same] is sizes[same]:
        same += 1
    rest, others = before[same:], [size for size in sizes[same:] if size is not None]
    if all(isinstance(size, int) for size in (*rest, *others)):
        numbers = [int(size) for size in rest if isinstance(size, int)]
        sizes[sizes.index(None)] = math.prod(numbers) // math.prod(
            int(size) for size in others if isinstance(size, int)
        )
    return sizes


VOCABULARY["view"] = _reshape


@word
def _flatten(x: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    first, last = start_dim % x.dim(), end_dim % x.dim()
    return _reshape(x, *x.shape[:first], -1, *x.shape[last + 1 :])


@word
def _permute(x: Value, *order: Any) -> Value:
    axes = [axis % x.dim() for axis in _shape(order)]
    handle = x.tracer.builder.node("Transpose", x.handle, perm=axes)
    return x.tracer.value(handle, x.dtype, [x.sizes[axis] for axis in axes])


@word
def _transpose(x: Value, first: int, second: int) -> Value:
    axes = list(range(x.dim()))
    axes[first], axes[second] = axes[second], axes[first]
    return _permute(x, *axes)


@word
def _unsqueeze(x: Value, dim: int) -> Value:
    axis = dim % (x.dim() + 1)
    handle = x.tracer.builder.node("Unsqueeze", x.handle, x.tracer.builder.integers(axis))
    sizes = x.sizes
    sizes.insert(axis, 1)
    return x.tracer.value(handle, x.dtype, sizes)


@word
def _squeeze(x: Value, dim: int) -> Value:
    axis = dim % x.dim()
    handle = x.tracer.builder.node("Squeeze", x.handle, x.tracer.builder.integers(axis))
    return x.tracer.value(handle, x.dtype, [*x.sizes[:axis], *x.sizes[axis + 1 :]])


@word
def _expand(x: Value, *lengths: Any) -> Value:
    wanted = _shape(lengths)
    sizes = x.sizes
    offset = len(wanted) - len(sizes)
    found: list[Any] = []
    for place, length in enumerate(wanted):
        stays = isinstance(length, int) and length == -1
        found.append(sizes[place - offset] if stays else length)
    asked = [1 if isinstance(length, int) and length == -1 else length for length in wanted]
    return x.tracer.value(x.tracer.builder.node("Expand", x.handle, joined(x.tracer.builder, asked)), x.dtype, found)


@word
def _cat(parts: Sequence[Any], dim: int = 0) -> Value:
    tracer = tracer_of(*parts)
    assert tracer is not None
    values = [lifted(tracer, part) for part in parts]
    axis = dim % values[0].dim()
    sizes = values[0].sizes
    for value in values[1:]:
        sizes = [here if here is not None else there for here, there in zip(sizes, value.sizes, strict=True)]
    lengths = [value.size(axis) for value in values]
    total = lengths[0]
    for length in lengths[1:]:
        total = total + length
    sizes[axis] = total
    return tracer.value(
        tracer.builder.node("Concat", *(value.handle for value in values), axis=axis), values[0].dtype, sizes
    )


@word
def _chunk(x: Value, parts: int, dim: int = 0) -> tuple[Value, ...]:
    axis = dim % x.dim()
    whole = x.sizes[axis]
    sizes = x.sizes
    sizes[axis] = whole // parts if isinstance(whole, int) else None
    found = x.tracer.builder.node("Split", x.handle, outputs=parts, axis=axis_of(x, dim), num_outputs=parts)
    return tuple(x.tracer.value(handle, x.dtype, sizes) for handle in found)


@word
def _split(x: Value, lengths: Sequence[Any], dim: int = 0) -> tuple[Value, ...]:
    builder = x.tracer.builder
    if len(lengths) == 1:
        return (x,)
    found = builder.node("Split", x.handle, joined(builder, list(lengths)), outputs=len(lengths), axis=dim % x.dim())
    parts = []
    for handle, length in zip(found, lengths, strict=True):
        sizes = x.sizes
        sizes[dim] = length
        parts.append(x.tracer.value(handle, x.dtype, sizes))
    return tuple(parts)


@word
def _pad(x: Value, amounts: Sequence[Any], mode: str = "constant", value: Any = None) -> Value:
    builder, sizes, handle = x.tracer.builder, x.sizes, x.handle
    filler: Any = "" if value is None or value == 0 else lifted(x.tracer, value, x.dtype).handle
    for place in range(len(amounts) // 2):
        axis = x.dim() - 1 - place
        left, right = amounts[2 * place], amounts[2 * place + 1]
        if isinstance(left, int) and left == 0 and isinstance(right, int) and right == 0:
            continue
        sizes[axis] = x.size(axis) + left + right
        handle = builder.node("Pad", handle, joined(builder, [left, right]), filler, builder.integers(axis))
    return x.tracer.value(handle, x.dtype, sizes)


@word
def _gather(x: Value, dim: int, index: Any) -> Value:
    index = lifted(x.tracer, index)
    handle = x.tracer.builder.node("GatherElements", x.handle, index.handle, axis=axis_of(x, dim))
    return x.tracer.value(handle, x.dtype, index.sizes)


@word
def _index_select(x: Value, dim: int, index: Any) -> Value:
    index = lifted(x.tracer, index)
    axis = dim % x.dim()
    sizes = [*x.sizes[:axis], *index.sizes, *x.sizes[axis + 1 :]]
    return x.tracer.value(x.tracer.builder.node("Gather", x.handle, index.handle, axis=axis), x.dtype, sizes)


def _cut(x: Value, axis: int, first: Any, last: Any) -> Value:
    """The slice from `first` to `last` (None: to the end) of one dimension."""
    builder, sizes, whole = x.tracer.builder, x.sizes, x.sizes[axis]
    begins_first = isinstance(first, int) and first == 0
    if begins_first and last is None:
        return x
    if isinstance(first, int) and first < 0:
        first = x.size(axis) + first
    if isinstance(last, int) and last < 0:
        last = x.size(axis) + last
    if begins_first:
        sizes[axis] = last
    elif last is None:
        sizes[axis] = None if whole is None else whole - first
    else:
        sizes[axis] = last - first
    if isinstance(whole, int) and isinstance(sizes[axis], int):
        end = whole if last is None else last
        sizes[axis] = (end if end < whole else whole) - (first if first < whole else whole)
    ends = builder.integers(TO_THE_END) if last is None else handle_of(builder, last)
    return x.tracer.value(builder.cut(x.handle, handle_of(builder, first), ends, axis), x.dtype, sizes)


@word
def _getitem(x: Value, index: Any) -> Value:
    index = index if isinstance(index, tuple) else (index,)
    if x.layers is not None and len(index) == 1 and isinstance(index[0], int):
        return x.layers[index[0]]
    if any(one is ... for one in index):
        place = next(number for number, one in enumerate(index) if one is ...)
        given = [one for one in index if one is not None and one is not ...]
        missing = x.dim() - len(given)
        index = (*index[:place], *([slice(None)] * missing), *index[place + 1 :])
    axis = 0
    for one in index:
        if one is None:
            x = _unsqueeze(x, axis)
            axis += 1
        elif isinstance(one, slice):
            if one.step not in (None, 1):
                raise TraceError("slices with a step are not in the vocabulary of graphs")
            x = _cut(x, axis, 0 if one.start is None else one.start, one.stop)
            axis += 1
        elif isinstance(one, int):
            ends = one + 1 if one != -1 else None
            x = _squeeze(_cut(x, axis, one, ends), axis)
        elif isinstance(one, Value | Tensor):
            chosen = lifted(x.tracer, one)
            x = _index_select(x, axis, chosen)
            axis += chosen.dim()
        else:
            raise TraceError(f"indexing by {type(one).__name__} is not in the vocabulary of graphs")
    return x
