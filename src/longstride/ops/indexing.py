"""Counting, looking up, choosing and writing: places, what stands there, and what becomes of a step's states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.ops.size import Size, handle_of
from longstride.ops.trace import FLOAT, INTEGER, Value, lifted, tracer_of


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


# --- choosing from a vocabulary, and what chosen tokens are worth ----------------------------------------------------


def best(logits: Tensor, forbidden: Tensor) -> Tensor:
    """[..., vocabulary] -> [...] the id of the largest logit, the first of equals, but none of the forbidden [n]"""
    tracer = tracer_of(logits)
    if tracer is None:
        return logits.index_fill(-1, forbidden, float("-inf")).argmax(dim=-1)
    values, ids = lifted(tracer, logits), lifted(tracer, forbidden)
    vocabulary = values.sizes[-1]
    assert isinstance(vocabulary, int)
    return tracer.value(tracer.builder.best(values.handle, ids.handle, vocabulary), INTEGER, values.sizes[:-1])  # type: ignore[return-value]


def log_shares(logits: Tensor, ids: Tensor) -> Tensor:
    """Log-probabilities of some ids [..., n] under logits [..., vocabulary] -> [..., n]"""
    if tracer_of(logits) is None:
        wide = logits if logits.dtype == torch.float64 else logits.float()
        return wide.gather(-1, ids) - wide.logsumexp(dim=-1, keepdim=True)
    return logits.log_softmax(dim=-1).gather(-1, ids)


def wide(logits: Tensor) -> torch.dtype:
    """What sums over a vocabulary are made in."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def likeliest(logits: Tensor, forbidden: Tensor, count: int, other: int) -> tuple[Tensor, Tensor, Tensor]:
    """[..., vocabulary] -> the `count` most likely ids but the forbidden [n], best first, and their log-probabilities
    [..., count], -inf where too few are left; and the log-probability of `other` [...], forbidden or not"""
    tracer = tracer_of(logits)
    if tracer is None:
        shares = logits.log_softmax(dim=-1, dtype=wide(logits))
        apart = shares[..., other].clone()
        values, ids = shares.index_fill_(-1, forbidden, float("-inf")).topk(count, dim=-1)
        return ids, values, apart
    given, sizes = lifted(tracer, logits), [*lifted(tracer, logits).sizes[:-1], count]
    never, vocabulary = lifted(tracer, forbidden).handle, given.sizes[-1]
    found = tracer.builder.largest_allowed(given.handle, never, count, vocabulary)
    best_values: Any = tracer.value(found[0], FLOAT, sizes)
    best_ids: Any = tracer.value(found[1], INTEGER, sizes)
    shares = log_shares(logits, F.pad(best_ids, (0, 1), value=other))
    possible = best_values > torch.finfo(torch.float32).min
    return best_ids, torch.where(possible, shares[..., :count], float("-inf")), shares[..., count]


def first_false(flags: Tensor) -> Tensor:
    """[rows, n] booleans -> [rows] the place of the first that is False, n where none is"""
    if tracer_of(flags) is None:
        return flags.cumprod(dim=1).sum(dim=1)
    return (~F.pad(flags, (0, 1))).argmax(dim=1)


# --- writing to what a step keeps from call to call ------------------------------------------------------------------


def assign(state: Tensor, new: Tensor) -> None:
    """state becomes new, of the same shape"""
    tracer = tracer_of(state)
    if tracer is None:
        state.copy_(new)
    else:
        _renew(state, tracer.builder.assign(_handle(state), lifted(tracer, new).handle))


def append(state: Tensor, new: Tensor, start: Tensor) -> None:
    """state [rows, columns] with new [rows, step] written from each row's own start [rows] on"""
    tracer = tracer_of(state)
    if tracer is None:
        state.scatter_(1, slots_from(start, new.shape[1]), new)
    else:
        values = (lifted(tracer, one).handle for one in (new, start))
        _renew(state, tracer.builder.append(_handle(state), *values))


def accumulate(state: Tensor, new: Tensor) -> None:
    """state [rows], in float64, plus the sum of new [rows, step]"""
    tracer = tracer_of(state)
    if tracer is None:
        state += new.sum(dim=1, dtype=state.dtype)
    else:
        _renew(state, tracer.builder.accumulate(_handle(state), lifted(tracer, new).handle))


def move_slots(state: Tensor, slots: Tensor, start: Tensor) -> None:
    """state [rows, heads, columns, head]: what lies in slots [rows, step] also lies from each row's start [rows] on"""
    tracer = tracer_of(state)
    if tracer is not None:
        made = tracer.builder.move(_handle(state), *(lifted(tracer, one).handle for one in (slots, start)))
        if made is not None:
            _renew(state, made)
            return
    _, heads, _, head = state.shape
    moved = state.gather(2, slots[:, None, :, None].expand(-1, heads, -1, head))
    if tracer is None:
        state.scatter_(2, slots_from(start, slots.shape[1])[:, None, :, None].expand_as(moved), moved)
    else:
        values = (lifted(tracer, one).handle for one in (moved, start))
        _renew(state, tracer.builder.write(_handle(state), *values))


def _handle(state: object) -> object:
    assert isinstance(state, Value)
    return state.handle


def _renew(state: object, handle: object) -> None:
    assert isinstance(state, Value)
    state.handle = handle


def in_portions(
    function: Callable[..., Sequence[Tensor]], values: Sequence[Tensor], most: int, kinds: Sequence[torch.dtype]
) -> list[Tensor]:
    """What `function` makes of values that all have as many rows [n, ...], at most `most` rows at a time.

    It gives values of these `kinds` with as many rows, which are put together again: what it makes of a row may depend
    on that row alone.
    """
    tracer = tracer_of(*values)
    if tracer is None:
        parts = [function(*portion) for portion in zip(*(torch.split(value, most) for value in values), strict=True)]
        return [torch.cat(pieces) for pieces in zip(*parts, strict=True)]
    traced = [lifted(tracer, value) for value in values]
    shapes: list[Value] = []
    known = tracer.apart()

    def body(*handles: object) -> list[object]:
        given = [
            tracer.value(handle, value.dtype, [None, *value.sizes[1:]])
            for handle, value in zip(handles, traced, strict=True)
        ]
        found = [lifted(tracer, one) for one in function(*given)]
        shapes.extend(found)
        return [one.handle for one in found]

    handles = tracer.builder.in_portions([value.handle for value in traced], most, body, kinds)
    tracer.forget(known)
    rows = traced[0].sizes[0]
    return [
        tracer.value(handle, kind, [rows, *shape.sizes[1:]])  # type: ignore[misc]
        for handle, kind, shape in zip(handles, kinds, shapes, strict=True)
    ]
