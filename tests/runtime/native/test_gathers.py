"""Looking up by integers, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as shapes

from tests.runtime.native.harness import Array, OperatorError, carry_out, needs_library, rows_of, same
from tests.runtime.native.test_shapes import KINDS, numbered, whole

pytestmark = needs_library()


def indices(shape: tuple[int, ...], size: int, seed: int) -> Array:
    """Some of them negative"""
    return np.asarray(np.random.default_rng(seed).integers(-size, size, size=shape), dtype=np.int64)


@settings(max_examples=80)
@given(
    shapes.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4),
    shapes.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4),
    KINDS,
    st.data(),
)
def test_gather(shape: tuple[int, ...], asked: tuple[int, ...], kind: str, data: Any) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x, places = numbered(shape, kind), indices(asked, shape[axis], 0)
    same(carry_out("Gather", x, places, attributes=[axis])[0], np.take(x, places, axis=axis))


def test_rows_of_a_table() -> None:
    table = rows_of((300, 512))
    ids = indices((5, 31), 300, 1)
    same(carry_out("Gather", table, ids, attributes=[0], threads=2)[0], table[ids])


@settings(max_examples=80)
@given(shapes.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4), KINDS, st.data())
def test_elements(shape: tuple[int, ...], kind: str, data: Any) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    asked = [data.draw(st.integers(0, size)) for size in shape]
    asked[axis] = data.draw(st.integers(0, 5))
    x, places = numbered(shape, kind), indices(tuple(asked), shape[axis], 0)
    within = [slice(size) for size in asked]
    within[axis] = slice(None)
    expected = np.take_along_axis(x[tuple(within)], places, axis=axis)
    same(carry_out("GatherElements", x, places, attributes=[axis])[0], expected)


@settings(max_examples=80)
@given(shapes.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4), KINDS, st.data())
def test_several_dimensions(shape: tuple[int, ...], kind: str, data: Any) -> None:
    batch = data.draw(st.integers(0, len(shape) - 1))
    depth = data.draw(st.integers(1, len(shape) - batch))
    between = data.draw(shapes.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3))
    sizes = shape[batch : batch + depth]
    drawn = [indices((*shape[:batch], *between), size, number) for number, size in enumerate(sizes)]
    if len(drawn[0].shape) + len(shape) - batch - depth > 6:
        return
    x, places = numbered(shape, kind), np.stack(drawn, axis=-1)
    expected = np.empty((*shape[:batch], *between, *shape[batch + depth :]), dtype=kind)
    for at in np.ndindex(*places.shape[:-1]):
        expected[at] = x[at[:batch] + tuple(int(place) for place in places[at])]
    same(carry_out("GatherND", x, places, attributes=[batch])[0], expected)


@pytest.mark.parametrize(("name", "places"), [("Gather", [4]), ("GatherElements", [-5]), ("GatherND", [4])])
def test_what_lies_outside_is_told(name: str, places: list[int]) -> None:
    with pytest.raises(OperatorError, match="outside"):
        carry_out(name, whole(0, 1, 2, 3), whole(*places), attributes=[0])
