"""Products with listed rows of a matrix: right, the same whatever stands beside a row, and never outside of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride import ops
from longstride.runtime.native.weights import by_rows
from tests.runtime.native.harness import Array, OperatorError, carry_out, needs_library, rows_of, same

pytestmark = [needs_library(), pytest.mark.usefixtures("variant")]


def product(x: Array, weight: Array, ids: Array, precision: int, threads: int = 1) -> Array:
    held = by_rows(torch.from_numpy(weight), precision)
    shape = [weight.shape[1], weight.shape[0], precision]
    return carry_out("Listed", x, ids, attributes=shape, weights=held.address, threads=threads)[0]


@settings(max_examples=40)
@given(
    rows=st.integers(1, 3), slots=st.integers(1, 11), inputs=st.integers(1, 140), words=st.integers(1, 40),
    seed=st.integers(0, 99), precision=st.sampled_from([8, 32]),
)  # fmt: skip
def test_rows_that_are_listed(rows: int, slots: int, inputs: int, words: int, seed: int, precision: int) -> None:
    x, weight = rows_of((rows, slots, inputs), seed), rows_of((50, inputs), seed + 1)
    ids = np.random.default_rng(seed).integers(0, 50, (rows, words))
    found = product(x, weight, ids, precision)
    plain = ops.listed(*(torch.from_numpy(one) for one in (x, weight, ids))).numpy()
    # In 8 bits each number is off by half a step of its row at most.
    steps = [np.abs(one).max(-1, keepdims=True) / 127 for one in (x, weight)]
    off = (
        steps[0] * np.abs(weight).sum(-1)[ids][:, None]
        + np.abs(x).sum(-1, keepdims=True) * steps[1][ids][:, None, :, 0]
    )
    assert (np.abs(found - plain) <= (off * 0.6 + 1e-5 if precision == 8 else 1e-4)).all()
    for row in range(rows):
        for slot in range(slots):
            here, there = (slice(row, row + 1), slice(slot, slot + 1)), ids[row : row + 1]
            same(product(x[here], weight, there, precision), found[here])


@pytest.mark.parametrize("precision", [8, 32])
def test_many_by_several_threads(precision: int) -> None:
    x, weight = rows_of((2, 9, 96)), rows_of((700, 96), 1)
    ids = np.stack([np.arange(600), np.arange(699, 99, -1)])
    same(product(x, weight, ids, precision, threads=2), product(x, weight, ids, precision))


def test_nothing_and_zeros() -> None:
    weight = np.zeros((3, 5), np.float32)
    assert not product(rows_of((1, 2, 5)), weight, np.array([[2, 0]]), 8).any()
    assert not product(np.zeros((1, 2, 5), np.float32), rows_of((3, 5)), np.array([[2, 0]]), 8).any()
    assert product(rows_of((0, 2, 5)), weight, np.zeros((0, 4), np.int64), 8).shape == (0, 2, 4)


@pytest.mark.parametrize("id", [-1, 3])
def test_ids_outside_are_refused(id: int) -> None:
    with pytest.raises(OperatorError, match="ids of its matrix, found one outside"):
        product(rows_of((1, 2, 5)), rows_of((3, 5)), np.array([[0, id]]), 8)
