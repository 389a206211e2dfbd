"""Shares and their logarithms, against float64; and bit for bit the same in any company."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.native.harness import Array, OperatorError, carry_out, needs_library, rows_of, same

pytestmark = [needs_library(), pytest.mark.usefixtures("variant")]

HIDDEN = np.float32(-1e30)


def shares(x: Array) -> tuple[Array, Array]:
    wide = x.astype(np.float64)
    wide = wide - wide.max(axis=-1, keepdims=True)
    total = np.exp(wide).sum(axis=-1, keepdims=True)
    return np.exp(wide) / total, wide - np.log(total)


@settings(max_examples=50)
@given(st.integers(1, 4), st.integers(1, 90), st.sampled_from([0.1, 1.0, 20.0]))
def test_short_rows(rows: int, length: int, scale: float) -> None:
    x = rows_of((rows, 1, length)) * np.float32(scale)
    expected, logarithm = shares(x)
    np.testing.assert_allclose(carry_out("Softmax", x, attributes=[-1])[0], expected, rtol=1e-5, atol=1e-30)
    np.testing.assert_allclose(carry_out("LogSoftmax", x, attributes=[2])[0], logarithm, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("length", [2048, 5000, 16000])
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_long_rows_and_threads(name: str, length: int) -> None:
    x = rows_of((1, 11, length)) * 3
    x[0, 2, :3000] = HIDDEN
    x[0, 3, : min(length - 1, 4100)] = -np.inf
    found = carry_out(name, x, attributes=[-1])[0]
    expected = shares(x)[name == "LogSoftmax"]
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-30)
    same(carry_out(name, x, attributes=[-1], threads=2)[0], found)
    for row in (0, 2, 3, 10):
        same(carry_out(name, x[0, row], attributes=[-1])[0], found[0, row])


def test_what_is_hidden_adds_nothing() -> None:
    x = rows_of((3, 40))
    x[:, 23:] = HIDDEN
    found = carry_out("Softmax", x, attributes=[-1])[0]
    assert not found[:, 23:].any()
    same(carry_out("Softmax", x[:, :23], attributes=[-1])[0], np.ascontiguousarray(found[:, :23]))


def test_other_axes_are_told() -> None:
    with pytest.raises(OperatorError, match="last axis"):
        carry_out("Softmax", rows_of((2, 3)), attributes=[0])
