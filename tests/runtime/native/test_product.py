"""Products: against their definition in numpy and torch, and bit for bit whatever stands beside a row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_float

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.nn.weights import SCALE, quantized
from longstride.runtime.native.library import library
from tests.runtime.native.harness import Array, OperatorError, carry_out, needs_library, rows_of

pytestmark = [needs_library(), pytest.mark.usefixtures("variant")]

SMALLEST = np.float32(torch.finfo(torch.float32).tiny * 127)


@contextmanager
def packed(weight: Array, bias: Array | None, precision: int) -> Iterator[int]:
    """The address of a packed matrix"""
    given_bias = None if bias is None else bias.ctypes.data_as(POINTER(c_float))
    place = library().pack_linear(weight.ctypes.data_as(POINTER(c_float)), given_bias, *weight.shape, precision)
    assert place
    try:
        yield place
    finally:
        library().free_linear(place)


def linear(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    precision: int = 8,
    nonnegative: bool = False,
    relu: bool = False,
    threads: int = 1,
) -> Array:
    """x times the weight, natively"""
    with packed(weight, bias, precision) as place:
        attributes = [weight.shape[1], weight.shape[0], nonnegative, relu, precision]
        return carry_out("Linear", x, attributes=attributes, threads=threads, weights=place)[0]


def quantized_twin(x: Array, weight: Array, bias: Array | None, levels: int, relu: bool) -> Array:
    """The same in numpy, with so many codes above zero: sums are whole numbers, so only roundings differ."""
    of_weights = library().weight_levels()
    scale = np.maximum(np.abs(weight).max(axis=1), SMALLEST) / np.float32(of_weights)
    codes = np.clip(np.rint(weight / scale[:, None]), -of_weights, of_weights).astype(np.int64)
    largest = np.maximum(np.abs(x).max(axis=-1, keepdims=True), SMALLEST)
    parts = np.rint(x * (np.float32(levels) / largest)).astype(np.int64)
    found = (parts @ codes.T).astype(np.float32) * (largest * (np.float32(1) / np.float32(levels))) * scale
    found = found if bias is None else found + bias
    rectified: Array = np.maximum(found, 0) if relu else found
    return rectified


def close(found: Array, expected: Array, step: float = 0.0) -> None:
    """Equal but for rounding; or but for a few codes, each of which is worth a `step` at most"""
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 + step)


@settings(max_examples=60)
@given(
    rows=st.integers(1, 40),
    inputs=st.sampled_from([1, 3, 8, 12, 32, 64, 100, 512]),
    outputs=st.sampled_from([1, 8, 12, 16, 23, 32, 33, 96, 600]),
    with_bias=st.booleans(),
    nonnegative=st.booleans(),
    relu=st.booleans(),
    threads=st.sampled_from([1, 2]),
    seed=st.integers(0, 1000),
)
def test_integer_products_are_those_of_quantized_rows(
    rows: int, inputs: int, outputs: int, with_bias: bool, nonnegative: bool, relu: bool, threads: int, seed: int
) -> None:
    """For any sizes."""
    x, weight = rows_of([rows, inputs], seed), rows_of([outputs, inputs], seed + 1)
    x = np.maximum(x, 0) if nonnegative else x
    bias = rows_of([outputs], seed + 2) if with_bias else None
    found = linear(x, weight, bias, 8, nonnegative, relu, threads)
    # a number that lies between two codes may be rounded either way
    step = float(np.abs(x).max() / 127 * np.abs(weight).max()) * 2
    # what is never negative has twice as many codes, but where a processor multiplies signed bytes alone
    twins = [quantized_twin(x, weight, bias, levels, relu) for levels in ((255, 127) if nonnegative else (127,))]
    expected = min(twins, key=lambda twin: float(np.abs(found - twin).sum()))
    assert (np.abs(found - expected) < 1e-4).mean() > 0.9
    close(found, expected, step)


@settings(max_examples=20)
@given(
    inputs=st.sampled_from([1, 3, 33, 64]),
    outputs=st.sampled_from([1, 23, 96]),
    exponent=st.integers(-30, 20),
    seed=st.integers(0, 1000),
)
def test_weights_stored_in_int8_are_packed_as_the_very_integers(
    inputs: int, outputs: int, exponent: int, seed: int
) -> None:
    """A row of x with a single 1 picks a column of codes, times the scale that packing found; where a processor has
    fewer codes for weights, as the nearest of these."""
    levels = library().weight_levels() / 127
    stored = quantized("w", torch.from_numpy(rows_of([outputs, inputs], seed)) * 10.0**exponent)
    codes, scale = stored["w"].numpy(), stored["w" + SCALE].numpy()
    columns = linear(np.eye(inputs, dtype=np.float32), (codes * scale[:, None]).astype(np.float32))
    np.testing.assert_allclose(
        columns.T / scale[:, None].astype(np.float64), np.rint(codes * levels) / levels, atol=1e-3
    )


@settings(max_examples=40)
@given(
    rows=st.integers(1, 40),
    inputs=st.sampled_from([1, 3, 12, 64, 512]),
    outputs=st.sampled_from([1, 12, 16, 23, 33, 600]),
    with_bias=st.booleans(),
    relu=st.booleans(),
    threads=st.sampled_from([1, 2]),
)
def test_float_products(rows: int, inputs: int, outputs: int, with_bias: bool, relu: bool, threads: int) -> None:
    """In fp32."""
    x, weight = rows_of([rows, inputs], rows), rows_of([outputs, inputs], 1)
    bias = rows_of([outputs], 2) if with_bias else None
    expected = x.astype(np.float64) @ weight.T.astype(np.float64) + (0 if bias is None else bias)
    expected = np.maximum(expected, 0) if relu else expected
    np.testing.assert_allclose(linear(x, weight, bias, 32, False, relu, threads), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("precision", [8, 32])
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize(("inputs", "outputs"), [(12, 23), (64, 600), (512, 512)])
def test_a_row_is_the_same_in_any_company(precision: int, nonnegative: bool, inputs: int, outputs: int) -> None:
    """Alone, among others, at any place, by any threads: bit for bit."""
    weight, bias = rows_of([outputs, inputs], 1), rows_of([outputs], 2)
    x = rows_of([37, inputs], 3) * np.exp(rows_of([37, 1], 4))
    x = np.maximum(x, 0) if nonnegative else x
    together = linear(x, weight, bias, precision, nonnegative, threads=2)
    for row in range(len(x)):
        np.testing.assert_array_equal(linear(x[row : row + 1], weight, bias, precision, nonnegative)[0], together[row])
    for width in (2, 5, 7, 11, 12, 13, 24, 25):
        part = linear(x[3 : 3 + width], weight, bias, precision, nonnegative, threads=2)
        np.testing.assert_array_equal(part, together[3 : 3 + width])


def test_a_row_of_zeros_gives_the_bias() -> None:
    """Nothing is divided by zero; tiny numbers stay finite."""
    weight, bias = rows_of([23, 12], 1), rows_of([23], 2)
    for nonnegative in (False, True):
        x = np.zeros((3, 12), np.float32)
        x[1] = 1e-42
        x[2] = 1e-37
        found = linear(x, weight, bias, 8, nonnegative)
        close(found, np.broadcast_to(bias, found.shape))
    assert np.isfinite(linear(np.full((1, 12), 3e38, np.float32), weight * 0, bias)).all()


def test_outputs_have_the_shape_of_inputs_but_for_the_last() -> None:
    """Any rank, and no rows at all."""
    weight = rows_of([5, 12])
    assert linear(rows_of([2, 3, 12]), weight).shape == (2, 3, 5)
    assert linear(rows_of([12]), weight).shape == (5,)
    assert linear(rows_of([0, 3, 12]), weight).shape == (0, 3, 5)


def test_a_row_of_another_width_is_refused() -> None:
    """By a sentence."""
    with pytest.raises(OperatorError, match="as many fp32 numbers"):
        linear(rows_of([2, 8]), rows_of([5, 12]))


def test_matrices_come_and_go() -> None:
    """In any order, several at a time, larger than a piece of memory among them."""
    sizes = [(5, 12), (9000, 1024), (600, 64), (40000, 1024), (23, 8)]
    places = []
    for outputs, inputs in sizes:
        weight = np.ones((outputs, inputs), np.float32)
        places.append(library().pack_linear(weight.ctypes.data_as(POINTER(c_float)), None, outputs, inputs, 8, 0))
    for number in (1, 0, 4, 3, 2):
        library().free_linear(places[number])
    library().free_linear(None)
    close(linear(np.ones((1, 8), np.float32), np.ones((3, 8), np.float32)), np.full((1, 3), 8.0), 1e-4)
