"""Products of what was made on the way, against float64; and bit for bit the same in any company."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as shapes

from tests.runtime.native.harness import OperatorError, carry_out, needs_library, rows_of, same

pytestmark = [needs_library(), pytest.mark.usefixtures("variant")]


@settings(max_examples=80)
@given(
    shapes.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=1, max_side=3),
    st.integers(1, 15),
    st.integers(0, 20),
    st.integers(1, 70),
)
def test_products(batches: Any, rows: int, inner: int, columns: int) -> None:
    left, right = batches.input_shapes
    x, y = rows_of((*left, rows, inner)), rows_of((*right, inner, columns), 1)
    expected = x.astype(np.float64) @ y.astype(np.float64)
    found = carry_out("MatMul", x, y)[0]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize(("columns", "inner"), [(64, 64), (37, 512), (96, 33)])
def test_a_row_is_the_same_in_any_company(columns: int, inner: int) -> None:
    x, y = rows_of((3, 64, inner)), rows_of((3, inner, columns), 1)
    together = carry_out("MatMul", x, y, threads=2)[0]
    np.testing.assert_allclose(together, x.astype(np.float64) @ y.astype(np.float64), atol=2e-4)
    for batch, row in ((0, 0), (1, 5), (2, 63), (2, 33)):
        same(carry_out("MatMul", x[batch, row : row + 1], y[batch])[0], together[batch, row : row + 1])
    # fewer columns, and more hidden ones that weigh nothing
    same(carry_out("MatMul", x[1], y[1, :, :9])[0], np.ascontiguousarray(together[1, :, :9]))
    longer = np.concatenate([x[1], np.zeros((64, 7), np.float32)], axis=1), np.concatenate([y[1], y[0, :7]])
    same(carry_out("MatMul", *longer)[0], together[1])


def test_what_does_not_fit_is_told() -> None:
    with pytest.raises(OperatorError, match="as many columns"):
        carry_out("MatMul", rows_of((2, 3)), rows_of((2, 3)))
