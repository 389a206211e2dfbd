"""The largest, where it stands, the k largest, and sums, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as shapes

from tests.runtime.native.harness import OperatorError, carry_out, needs_library, rows_of, same
from tests.runtime.native.test_elementwise import NUMBERS, some
from tests.runtime.native.test_shapes import whole

pytestmark = needs_library()

SHAPES = shapes.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5)
LONG = st.tuples(st.integers(1, 3), st.integers(1, 100), st.integers(1, 40))


@settings(max_examples=120)
@given(SHAPES | LONG, st.sampled_from(NUMBERS), st.booleans(), st.data())
def test_where_the_largest_stands(shape: tuple[int, ...], kind: str, keep: bool, data: Any) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = some(kind, shape, 0)
    found = carry_out("ArgMax", x, attributes=[axis, int(keep)])[0]
    same(found, np.asarray(np.argmax(x, axis=axis, keepdims=keep)))


@settings(max_examples=120)
@given(SHAPES | LONG, st.sampled_from(NUMBERS), st.booleans(), st.data())
def test_largest_and_sum(shape: tuple[int, ...], kind: str, keep: bool, data: Any) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = some(kind, shape, 0)
    largest = np.asarray(x.max(axis=axis, keepdims=keep))
    same(carry_out("ReduceMax", x, whole(axis), attributes=[int(keep)])[0], largest)
    summed = np.asarray(x.sum(axis=axis, keepdims=keep, dtype=kind))  # few small integers: exact in fp32 as well
    same(carry_out("ReduceSum", x, whole(axis), attributes=[int(keep)])[0], summed)
    both = carry_out("Largest", x, attributes=[axis, int(keep)], outputs=2)
    same(both[0], largest)
    same(both[1], np.asarray(np.argmax(x, axis=axis, keepdims=keep)))


def test_what_there_is_none_of_is_told() -> None:
    with pytest.raises(OperatorError, match="at least one"):
        carry_out("ReduceMax", rows_of((2, 0)), whole(1), attributes=[0])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("shape", "axis"), [((1, 11, 16000), 2), ((1, 11, 80, 200), 3), ((1, 10, 250, 64), 2), ((1, 10, 250, 70), 2)]
)
def test_large_ones(shape: tuple[int, ...], axis: int, threads: int) -> None:
    x = np.round(rows_of(shape), 1)  # equals among them
    same(carry_out("ArgMax", x, attributes=[axis, 0], threads=threads)[0], np.argmax(x, axis=axis))
    same(carry_out("ReduceMax", x, whole(axis), attributes=[0], threads=threads)[0], x.max(axis=axis))
    summed = carry_out("ReduceSum", x, whole(axis), attributes=[0], threads=threads)[0]
    np.testing.assert_allclose(summed, x.sum(axis=axis, dtype=np.float64), atol=2e-3)


def test_what_is_forbidden_everywhere() -> None:
    x = np.full((2, 40), -np.inf, np.float32)
    same(carry_out("ArgMax", x, attributes=[-1, 0])[0], whole(0, 0))
    x[1, 37] = -1e30
    same(carry_out("ArgMax", x, attributes=[-1, 0])[0], whole(0, 37))


@settings(max_examples=60)
@given(st.integers(1, 5), st.integers(1, 60), st.data())
def test_the_k_largest(rows: int, length: int, data: Any) -> None:
    k = data.draw(st.integers(1, length))
    x = np.round(rows_of((rows, length)), 1)
    order = np.argsort(-x, axis=-1, kind="stable")[:, :k]
    found, where = carry_out("TopK", x, whole(k), attributes=[-1], outputs=2)
    same(where, order)
    same(found, np.take_along_axis(x, order, axis=-1))


@settings(max_examples=30)
@given(
    st.integers(1, 3), st.integers(500, 9000), st.integers(1, 64), st.lists(st.integers(0, 499), max_size=4), st.data()
)
def test_the_k_largest_of_many(rows: int, length: int, k: int, never: list[int], data: Any) -> None:
    """Of equals the first, none of those that are left out, whatever lies where."""
    x = np.round(rows_of((rows, length)), data.draw(st.integers(0, 3)))
    if data.draw(st.booleans()):
        x = np.sort(x, axis=-1)
    if data.draw(st.booleans()):
        x[:, data.draw(st.integers(0, 100)) :] = -np.inf
    allowed = x.copy()
    allowed[:, never] = -np.inf
    order = np.argsort(-allowed, axis=-1, kind="stable")[:, :k]
    found, where = carry_out("TopK", x, whole(k), whole(*never), attributes=[-1], outputs=2, threads=2)
    expected = np.take_along_axis(allowed, order, axis=-1)
    same(found, expected)
    there = expected > -np.inf
    same(where[there], order[there])


def test_a_sum_is_the_same_in_any_company() -> None:
    x = rows_of((60, 517))
    together = carry_out("ReduceSum", x, whole(-1), attributes=[0], threads=2)[0]
    for row in range(0, 60, 7):
        same(carry_out("ReduceSum", x[row], whole(-1), attributes=[0])[0], together[row])
