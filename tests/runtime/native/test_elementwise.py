"""Operators of one, two or three numbers at the same place, against numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as shapes

from tests.runtime.native.harness import KIND, Array, OperatorError, carry_out, needs_library, rows_of, same

pytestmark = needs_library()

NUMBERS = ("float32", "int64")

ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Max": np.maximum,
    "Min": np.minimum,
}
COMPARISONS: dict[str, Callable[..., Any]] = {
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
}
LOGIC: dict[str, Callable[..., Any]] = {"And": np.logical_and, "Or": np.logical_or}


def some(kind: str, shape: tuple[int, ...], seed: int) -> Array:
    """Few different numbers, so that some are equal"""
    chosen = np.random.default_rng(seed).integers(-3, 4, size=shape)
    return chosen > 0 if kind == "bool" else np.asarray(chosen, dtype=kind)


def together(count: int) -> st.SearchStrategy[Any]:
    return shapes.mutually_broadcastable_shapes(num_shapes=count, min_dims=0, max_dims=5, min_side=0, max_side=5)


@settings(max_examples=100)
@given(together(2), st.sampled_from([*ARITHMETIC, *COMPARISONS]), st.sampled_from(NUMBERS), st.integers(0, 9))
def test_two_numbers(found: Any, name: str, kind: str, seed: int) -> None:
    x, y = (some(kind, shape, seed + number) for number, shape in enumerate(found.input_shapes))
    expected = np.asarray((ARITHMETIC | COMPARISONS)[name](x, y))
    same(carry_out(name, x, y)[0], expected)


@settings(max_examples=30)
@given(together(2), st.sampled_from([*LOGIC, "Equal"]))
def test_two_booleans(found: Any, name: str) -> None:
    x, y = (some("bool", shape, number) for number, shape in enumerate(found.input_shapes))
    same(carry_out(name, x, y)[0], np.asarray((LOGIC | COMPARISONS)[name](x, y)))


@settings(max_examples=40)
@given(together(2), st.sampled_from(NUMBERS))
def test_division_of_integers_is_towards_zero(found: Any, kind: str) -> None:
    x, y = (some(kind, shape, number) for number, shape in enumerate(found.input_shapes))
    x, y = np.asarray(x * 5, kind), np.asarray(np.where(y == 0, 2, y), kind)
    expected = np.asarray(x / y, np.float32) if kind == "float32" else np.asarray(np.trunc(x / y), kind)
    same(carry_out("Div", x, y)[0], expected)


def test_what_has_no_result_is_told() -> None:
    with pytest.raises(OperatorError, match="divided by zero"):
        carry_out("Div", np.arange(3), np.array([1, 0, 1]))
    smallest = np.array([np.iinfo(np.int64).min])
    same(carry_out("Div", smallest, np.array([-1]))[0], smallest)
    with pytest.raises(OperatorError, match="do not fit"):
        carry_out("Add", np.arange(3), np.arange(4))
    with pytest.raises(OperatorError, match="kinds"):
        carry_out("Add", np.arange(3), rows_of((3,)))


@settings(max_examples=60)
@given(together(3), st.sampled_from([*NUMBERS, "bool"]))
def test_one_of_two(found: Any, kind: str) -> None:
    condition, x, y = found.input_shapes
    given_values = some("bool", condition, 1), some(kind, x, 2), some(kind, y, 3)
    same(carry_out("Where", *given_values)[0], np.where(*given_values))


@settings(max_examples=40)
@given(shapes.array_shapes(min_dims=0, min_side=0), st.sampled_from([*NUMBERS, "bool"]), st.sampled_from([*KIND]))
def test_kinds(shape: tuple[int, ...], kind: str, to: str) -> None:
    x = some(kind, shape, 0)
    x = np.asarray(x * 1.4, kind) if kind == "float32" else x
    same(carry_out("Cast", x, attributes=[KIND[to]])[0], x.astype(to))


@pytest.mark.parametrize("kind", NUMBERS)
def test_one_number(kind: str) -> None:
    x = some(kind, (3, 17), 0)
    same(carry_out("Abs", x)[0], np.abs(x))
    same(carry_out("Identity", x)[0], x)
    if kind == "float32":
        same(carry_out("Relu", x)[0], np.maximum(x, 0))
    same(carry_out("Not", x > 0)[0], x <= 0)


@settings(max_examples=30)
@given(st.integers(0, 70), st.sampled_from([0.1, 1.0, 5.0, 100.0]))
def test_curves(length: int, scale: float) -> None:
    x = rows_of((length,)) * np.float32(scale)
    wide = x.astype(np.float64)
    sigmoid = 1 / (1 + np.exp(-wide))
    np.testing.assert_allclose(carry_out("Sigmoid", x)[0], sigmoid, rtol=5e-7, atol=1e-37)
    gelu = [0.5 * number * (1 + math.erf(number / math.sqrt(2))) for number in wide]
    np.testing.assert_allclose(carry_out("Gelu", x)[0], np.array(gelu), rtol=1e-6, atol=5e-7)


@pytest.mark.parametrize("name", ["Sigmoid", "Gelu"])
def test_a_number_is_the_same_in_any_company(name: str) -> None:
    x = rows_of((3, 41))
    whole = carry_out(name, x)[0]
    for row in range(3):
        same(carry_out(name, x[row, 5:38])[0], whole[row, 5:38])


@pytest.mark.parametrize("shape", [(3, 11, 16000), (40, 4, 1000), (70000,)])
def test_much_is_shared_out(shape: tuple[int, ...]) -> None:
    x, bias = rows_of(shape), rows_of(shape[-1:], 1)
    same(carry_out("Add", x, bias, threads=2)[0], x + bias)
    wide = rows_of((*shape[:-1], 1), 2)
    same(carry_out("Mul", wide, x, threads=2)[0], wide * x)
    hidden = np.array(-1e30, np.float32)
    same(carry_out("Where", x > 0, x, hidden, threads=2)[0], np.where(x > 0, x, hidden))
