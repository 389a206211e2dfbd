"""From a function of tensors to what a graph backend calls while it builds: the function itself, run on values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from longstride.ops.graph_builder import GraphBuilder, Handle
from longstride.ops.size import Size
from longstride.ops.trace import Tracer, Value

Specification = Mapping[str, tuple[torch.dtype, tuple[str | int, ...]]]
"""Name -> type and shape; a length that differs from call to call has a name, the same wherever it is the same."""

Record = Callable[[GraphBuilder, Mapping[str, Any]], dict[str, Any]]
"""(builder, handles of all inputs and states by name) -> handles of all outputs, and the new ones of all states"""


def recorded(
    function: Callable[..., Any],
    inputs: Specification,
    state: Specification,
    arguments: Callable[[Mapping[str, Any]], tuple[Any, ...]],
    results: Callable[[Any], Mapping[str, Any]],
) -> Record:
    """Run `function` on values: `arguments` makes what it takes of them, `results` names what it gives.

    What has layers for its first dimension comes as a list of handles, one a layer.
    """

    def record(builder: GraphBuilder, given: Mapping[str, Any]) -> dict[str, Any]:
        tracer = Tracer(builder)
        sizes: dict[str, Size] = {}
        values = {
            name: _placeholder(tracer, given[name], dtype, shape, sizes)
            for name, (dtype, shape) in {**inputs, **state}.items()
        }
        found = results(function(*arguments(values)))
        new = {name: _handles(values[name]) for name in state}
        return {**{name: value.handle for name, value in found.items()}, **new}

    return record


def _placeholder(
    tracer: Tracer, handle: Any, dtype: torch.dtype, shape: tuple[str | int, ...], sizes: dict[str, Size]
) -> Value:
    if isinstance(handle, list):
        whole = tracer.value(None, dtype, [len(handle), *[None] * (len(shape) - 1)])
        whole.layers = [_placeholder(tracer, one, dtype, shape[1:], sizes) for one in handle]
        for axis, size in enumerate(whole.layers[0].shape, start=1):
            whole.set_size(axis, size)
        return whole
    lengths: list[Any] = []
    for axis, length in enumerate(shape):
        if isinstance(length, str):
            if length not in sizes:
                sizes[length] = _length(tracer.builder, handle, axis)
            lengths.append(sizes[length])
        else:
            lengths.append(length)
    return tracer.value(handle, dtype, lengths)


def _length(builder: GraphBuilder, handle: Handle, axis: int) -> Size:
    return Size(builder, lambda: builder.size(handle, axis))


def _handles(value: Value) -> Any:
    return value.handle if value.layers is None else [layer.handle for layer in value.layers]
