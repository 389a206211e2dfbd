"""Writing to what a step keeps from call to call: in place on tensors, as new values of a graph's states."""

from __future__ import annotations

from torch import Tensor

from longstride.ops.indexing import slots_from
from longstride.ops.trace import Tracer, Value, lifted, tracer_of


def assign(state: Tensor, new: Tensor) -> None:
    """state becomes new, of the same shape"""
    tracer = tracer_of(state)
    if tracer is None:
        state.copy_(new)
    else:
        _renew(tracer, state, tracer.builder.assign(_handle(state), lifted(tracer, new).handle))


def append(state: Tensor, new: Tensor, start: Tensor) -> None:
    """state [rows, columns] with new [rows, step] written from each row's own start [rows] on"""
    tracer = tracer_of(state)
    if tracer is None:
        state.scatter_(1, slots_from(start, new.shape[1]), new)
    else:
        values = (lifted(tracer, one).handle for one in (new, start))
        _renew(tracer, state, tracer.builder.append(_handle(state), *values))


def accumulate(state: Tensor, new: Tensor) -> None:
    """state [rows], in float64, plus the sum of new [rows, step]"""
    tracer = tracer_of(state)
    if tracer is None:
        state += new.sum(dim=1, dtype=state.dtype)
    else:
        _renew(tracer, state, tracer.builder.accumulate(_handle(state), lifted(tracer, new).handle))


def move_slots(state: Tensor, slots: Tensor, start: Tensor) -> None:
    """state [rows, heads, columns, head]: what lies in slots [rows, step] also lies from each row's start [rows] on"""
    tracer = tracer_of(state)
    _, heads, _, head = state.shape
    moved = state.gather(2, slots[:, None, :, None].expand(-1, heads, -1, head))
    if tracer is None:
        state.scatter_(2, slots_from(start, slots.shape[1])[:, None, :, None].expand_as(moved), moved)
    else:
        values = (lifted(tracer, one).handle for one in (moved, start))
        _renew(tracer, state, tracer.builder.write(_handle(state), *values))


def _handle(state: object) -> object:
    assert isinstance(state, Value)
    return state.handle


def _renew(tracer: Tracer, state: object, handle: object) -> None:
    assert isinstance(state, Value)
    state.handle = handle
