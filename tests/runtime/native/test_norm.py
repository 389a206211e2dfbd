"""Layer norms against torch's, and rows by themselves."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.native.harness import Array, OperatorError, carry_out, needs_library, rows_of

pytestmark = [needs_library(), pytest.mark.usefixtures("variant")]


def norm(x: Array, added: Array | None, weight: Array, bias: Array, eps: float = 1e-5, threads: int = 1) -> Array:
    """Layer norm, natively"""
    both = np.concatenate([weight, bias])
    attributes = [len(weight), struct.unpack("<q", struct.pack("<d", eps))[0]]
    return carry_out("Norm", x, added, attributes=attributes, threads=threads, weights=both.ctypes.data)[0]


@settings(max_examples=60)
@given(
    rows=st.integers(0, 70),
    width=st.sampled_from([1, 4, 12, 16, 32, 63, 64, 65, 100, 128, 512]),
    adds=st.booleans(),
    threads=st.sampled_from([1, 2]),
)
def test_norms(rows: int, width: int, adds: bool, threads: int) -> None:
    """Of one input, and of a sum."""
    x, weight, bias = rows_of([1, rows, width], rows) * 3 + 1, rows_of([width], 1), rows_of([width], 2)
    added = rows_of([1, rows, width], 3) if adds else None
    found = norm(x, added, weight, bias, threads=threads)
    total = x if added is None else x + added
    expected = torch.nn.functional.layer_norm(*(_tensor(total), [width], _tensor(weight), _tensor(bias))).numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def _tensor(x: Array) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x))


@pytest.mark.parametrize("width", [12, 80, 512])
def test_a_row_is_the_same_in_any_company(width: int) -> None:
    """Bit for bit, whatever stands beside it."""
    x, added, weight, bias = (rows_of(shape, n) for n, shape in enumerate([[50, width], [50, width], [width], [width]]))
    together = norm(x, added, weight, bias, threads=2)
    for row in range(len(x)):
        alone = norm(x[row : row + 1], added[row : row + 1], weight, bias)
        np.testing.assert_array_equal(alone[0], together[row])


def test_sizes_that_do_not_fit_are_refused() -> None:
    """By a sentence."""
    with pytest.raises(OperatorError, match="as many fp32 numbers"):
        norm(rows_of([2, 8]), None, rows_of([12]), rows_of([12]))
    with pytest.raises(OperatorError, match="one size"):
        norm(rows_of([2, 8]), rows_of([1, 8]), rows_of([8]), rows_of([8]))
