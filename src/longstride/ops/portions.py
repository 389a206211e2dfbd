"""Work on many rows, a portion after the other: for what would be too large if all of it existed at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from longstride.ops.trace import Value, lifted, tracer_of


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
