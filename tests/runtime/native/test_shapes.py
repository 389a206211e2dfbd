"""Operators that change shapes, or put parts of tensors elsewhere, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as shapes

from tests.runtime.native.harness import Array, OperatorError, carry_out, needs_library, rows_of, same

pytestmark = needs_library()

KINDS = st.sampled_from(["float32", "int64", "bool"])
LAST = np.iinfo(np.int64).max


def numbered(shape: tuple[int, ...], kind: str) -> Array:
    """All different, where the kind allows it"""
    return np.arange(np.prod(shape, dtype=np.int64)).reshape(shape).astype(kind)


def whole(*numbers: int) -> Array:
    return np.array(numbers, dtype=np.int64)


@settings(max_examples=50)
@given(shapes.array_shapes(min_dims=1, max_dims=5, min_side=1, max_side=4), st.data())
def test_other_shapes(shape: tuple[int, ...], data: Any) -> None:
    x = numbered(shape, "int64")
    same(carry_out("Reshape", x, whole(-1))[0], x.reshape(-1))
    same(carry_out("Reshape", x, whole(0, -1))[0], x.reshape(shape[0], -1))
    rank = len(shape) + 1
    axis = data.draw(st.integers(-rank, rank - 1))
    wider = carry_out("Unsqueeze", x, whole(axis))[0]
    same(wider, np.expand_dims(x, axis))
    same(carry_out("Squeeze", wider, whole(axis))[0], x)
    same(carry_out("Shape", x, attributes=[0, LAST])[0], whole(*shape))
    same(carry_out("Shape", x, attributes=[0, -1])[0], whole(*shape[:-1]))
    same(carry_out("Shape", x, attributes=[-1, LAST])[0], whole(shape[-1]))


def test_shapes_that_do_not_fit_are_told() -> None:
    with pytest.raises(OperatorError, match="as many numbers"):
        carry_out("Reshape", np.arange(6), whole(4, -1))
    with pytest.raises(OperatorError, match="one -1"):
        carry_out("Reshape", np.arange(6), whole(-1, -1))
    with pytest.raises(OperatorError, match="size 1"):
        carry_out("Squeeze", np.arange(6), whole(0))
    same(carry_out("Reshape", np.zeros((0, 3)).astype(np.float32), whole(0, 3))[0], np.zeros((0, 3), np.float32))


@given(st.integers(-9, 9), st.integers(-9, 9))
def test_range(start: int, limit: int) -> None:
    same(carry_out("Range", np.array(start), np.array(limit), np.array(1))[0], np.arange(start, limit))


@settings(max_examples=60)
@given(shapes.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4), KINDS, st.data())
def test_concat_and_split(shape: tuple[int, ...], kind: str, data: Any) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
    parts = []
    for size in sizes:
        own = list(shape)
        own[axis] = size
        parts.append(numbered(tuple(own), kind))
    joined = carry_out("Concat", *parts, attributes=[axis])[0]
    same(joined, np.concatenate(parts, axis=axis))
    found = carry_out("Split", joined, whole(*sizes), attributes=[axis, 0], outputs=len(sizes))
    for part, expected in zip(found, parts, strict=True):
        same(part, expected)


@pytest.mark.parametrize("threads", [1, 2])
def test_split_into_equal_parts(threads: int) -> None:
    x = rows_of((70, 2, 1536))
    found = carry_out("Split", x, attributes=[-1, 3], outputs=3, threads=threads)
    for part, expected in zip(found, np.split(x, 3, axis=-1), strict=True):
        same(part, expected)
    uneven = carry_out("Split", np.arange(7), attributes=[0, 3], outputs=3)
    assert [part.tolist() for part in uneven] == [[0, 1, 2], [3, 4, 5], [6]]


@settings(max_examples=150)
@given(shapes.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5), KINDS, st.data())
def test_slice(shape: tuple[int, ...], kind: str, data: Any) -> None:
    x = numbered(shape, kind)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    start, end = data.draw(st.integers(-7, 7)), data.draw(st.integers(-7, 7) | st.just(LAST))
    taken = [slice(None)] * len(shape)
    taken[axis] = slice(start, end)
    same(carry_out("Slice", x, whole(start), whole(end), whole(axis))[0], x[tuple(taken)])


@settings(max_examples=80)
@given(shapes.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4), KINDS, st.data())
def test_pad(shape: tuple[int, ...], kind: str, data: Any) -> None:
    x = numbered(shape, kind)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    before, behind = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))
    widths = [(0, 0)] * len(shape)
    widths[axis] = (before, behind)
    filling = data.draw(st.sampled_from([None, np.array(1, dtype=kind)]))
    found = carry_out("Pad", x, whole(before, behind), filling, whole(axis))[0]
    same(found, np.pad(x, widths, constant_values=0 if filling is None else 1))


@settings(max_examples=60)
@given(shapes.mutually_broadcastable_shapes(num_shapes=2, max_dims=5, min_side=1, max_side=4), KINDS)
def test_expand(found: Any, kind: str) -> None:
    x, wanted = numbered(found.input_shapes[0], kind), found.input_shapes[1]
    same(carry_out("Expand", x, whole(*wanted))[0], np.broadcast_to(x, found.result_shape))


@settings(max_examples=100)
@given(shapes.array_shapes(min_dims=1, max_dims=6, min_side=1, max_side=4), KINDS, st.data())
def test_transpose(shape: tuple[int, ...], kind: str, data: Any) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    x = numbered(shape, kind)
    same(carry_out("Transpose", x, attributes=order)[0], x.transpose(order))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((1, 10, 64, 64), (0, 1, 3, 2)),
        ((2, 37, 50, 33), (0, 1, 3, 2)),
        ((3, 40, 17), (2, 1, 0)),
        ((3, 40, 17), (2, 0, 1)),
        ((2, 31, 8, 64), (0, 2, 1, 3)),
        ((2, 31, 3, 2, 8, 64), (3, 2, 0, 4, 1, 5)),
        ((16, 5, 20, 16), (3, 1, 2, 0)),
    ],
)
def test_large_transposes(shape: tuple[int, ...], order: tuple[int, ...], threads: int) -> None:
    x = rows_of(shape)
    same(carry_out("Transpose", x, attributes=order, threads=threads)[0], x.transpose(order))
