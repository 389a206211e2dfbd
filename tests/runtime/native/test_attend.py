"""Attention and the cache it reads: against torch's, and bit for bit whatever is hidden or stands beside a row."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.ops.graph_builder import HIDDEN
from tests.runtime.native.harness import Array, OperatorError, carry_out, needs_library, rows_of

pytestmark = [needs_library(), pytest.mark.usefixtures("variant")]


def attend(
    queries: Array, keys: Array, values: Array, mask: Array, heads: int, seen: int | None = None, threads: int = 1
) -> Array:
    """Attention, natively"""
    number = None if seen is None else np.array([seen], np.int64)
    return carry_out("Attend", queries, keys, values, mask, number, attributes=[heads], threads=threads)[0]


def write(state: Array, new: Array, start: Array) -> Array:
    """Natively, into the state's own memory"""
    return carry_out("Write", state, new, start, attributes=[state.shape[1]])[0]


def split_heads(x: Array, heads: int) -> Array:
    """[rows, length, width] -> [rows, heads, length, head]"""
    return np.ascontiguousarray(x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3))


def twin(queries: Array, keys: Array, values: Array, mask: Array, heads: int) -> Array:
    """The same by torch, in double precision; keys and values [rows, heads, seen, head]"""
    parts = (torch.from_numpy(x).double() for x in (split_heads(queries, heads), keys, values, mask))
    q, k, v, m = parts
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, m)
    return mixed.transpose(1, 2).reshape(queries.shape).numpy()


def masked(rows: int, step: int, seen: int, seed: int) -> Array:
    """[rows, 1, step, seen] of which every query sees at least one slot"""
    visible = np.random.default_rng(seed).random((rows, 1, step, seen)) < 0.7
    visible[..., 0] = True
    return np.where(visible, 0, HIDDEN).astype(np.float32)


@settings(max_examples=60)
@given(
    rows=st.integers(1, 3),
    step=st.integers(1, 12),
    seen=st.integers(1, 70),
    heads=st.sampled_from([1, 2, 8]),
    head=st.sampled_from([1, 4, 8, 16, 24, 48, 64, 80, 128]),
    apart=st.booleans(),
    threads=st.sampled_from([1, 2]),
)
def test_attention(rows: int, step: int, seen: int, heads: int, head: int, apart: bool, threads: int) -> None:
    """Heads apart or side by side."""
    width = heads * head
    queries, keys, values = (
        rows_of([rows, step, width]),
        rows_of([rows, seen, width], 1),
        rows_of([rows, seen, width], 2),
    )
    mask = masked(rows, step, seen, seen)
    expected = twin(queries, split_heads(keys, heads), split_heads(values, heads), mask, heads)
    if apart:
        keys, values = split_heads(keys, heads), split_heads(values, heads)
    found = attend(queries, keys, values, mask, heads, threads=threads)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=40)
@given(
    seen=st.integers(1, 50),
    more=st.integers(0, 40),
    head=st.sampled_from([4, 16, 64, 80]),
    threads=st.sampled_from([1, 2]),
    apart=st.booleans(),
)
def test_what_is_hidden_adds_nothing(seen: int, more: int, head: int, threads: int, apart: bool) -> None:
    """Bit for bit: hidden slots, of whatever content, and how many there are, and slots that are not looked at."""
    heads, step, width = 2, 5, 2 * head
    queries = rows_of([1, step, width])
    keys, values = rows_of([1, seen + more, width], 1) * 5, rows_of([1, seen + more, width], 2)
    mask = masked(1, step, seen, seen)
    wide = np.concatenate([mask, np.full((1, 1, step, more), HIDDEN, np.float32)], axis=3)
    shape = (lambda x: split_heads(x, heads)) if apart else np.ascontiguousarray
    exact = attend(queries, shape(keys[:, :seen]), shape(values[:, :seen]), mask, heads)
    hidden = attend(queries, shape(keys), shape(values), wide, heads, threads=threads)
    np.testing.assert_array_equal(hidden, exact)
    for rest in (keys, values):
        rest[:, seen:] = np.nan
    unseen = attend(queries, shape(keys), shape(values), mask, heads, seen=seen, threads=threads)
    np.testing.assert_array_equal(unseen, exact)


@settings(max_examples=30)
@given(
    seen=st.integers(1, 60),
    more=st.integers(1, 40),
    head=st.sampled_from([4, 16, 64, 80]),
    seed=st.integers(0, 99),
)
def test_where_hidden_slots_lie_changes_nothing(seen: int, more: int, head: int, seed: int) -> None:
    """Bit for bit: what a query sees comes in the same order, with hidden slots anywhere in between."""
    keys, values = rows_of([1, 2, seen, head], seed) * 5, rows_of([1, 2, seen, head], seed + 1)
    queries, bias = rows_of([1, 3, 2 * head]), rows_of([1, 1, 3, seen], 5)
    there = np.sort(np.random.default_rng(seed).permutation(seen + more)[:seen])
    wide_keys, wide_values = (np.full((1, 2, seen + more, head), np.nan, np.float32) for _ in range(2))
    mask = np.full((1, 1, 3, seen + more), HIDDEN, np.float32)
    wide_keys[:, :, there], wide_values[:, :, there], mask[..., there] = keys, values, bias
    together = attend(queries, keys, values, bias, 2)
    np.testing.assert_array_equal(attend(queries, wide_keys, wide_values, mask, 2), together)


def test_a_query_is_the_same_in_any_company() -> None:
    """Other rows, other queries of a step, other threads."""
    rows, step, seen, heads = 5, 11, 43, 8
    queries = rows_of([rows, step, 512])
    keys, values = rows_of([rows, heads, seen, 64], 1), rows_of([rows, heads, seen, 64], 2)
    mask = masked(rows, step, seen, 3)
    together = attend(queries, keys, values, mask, heads, threads=2)
    for row in range(rows):
        for query in range(step):
            here = slice(row, row + 1), slice(query, query + 1)
            own = mask[here[0], :, here[1]]
            alone = attend(queries[here], keys[here[0]], values[here[0]], own, heads)
            np.testing.assert_array_equal(alone[0, 0], together[row, query])


def test_one_mask_for_all() -> None:
    """A mask with one row, or one query, holds for every one."""
    queries, keys, values = rows_of([3, 4, 16]), rows_of([3, 2, 9, 8], 1), rows_of([3, 2, 9, 8], 2)
    mask = masked(1, 1, 9, 5)
    for shape in ((3, 1, 4, 9), (1, 1, 4, 9), (3, 1, 1, 9)):
        full = np.ascontiguousarray(np.broadcast_to(mask, shape))
        np.testing.assert_array_equal(attend(queries, keys, values, full, 2), attend(queries, keys, values, mask, 2))


def test_a_query_that_sees_nothing_is_finite() -> None:
    """A padded row, for example: nobody reads it, but it must not spoil sums."""
    queries, keys = rows_of([1, 2, 16]), rows_of([1, 2, 9, 8], 1)
    mask = np.full((1, 1, 2, 9), HIDDEN, np.float32)
    assert np.isfinite(attend(queries, keys, keys, mask, 2)).all()


@pytest.mark.skipif(sys.platform != "linux", reason="memory that nobody may read is asked for by Linux's own means")
def test_no_slot_is_read_behind_the_last_whatever_the_scores_are() -> None:
    """In a process of its own, which would die of it: the last slot ends where memory does that nobody may read."""
    code = """
        import ctypes, mmap
        import numpy as np
        from tests.runtime.native.test_attend import attend, rows_of

        memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
        whole = np.frombuffer(memory, np.uint8)
        behind = ctypes.c_void_p(whole.ctypes.data + mmap.PAGESIZE)
        assert ctypes.CDLL(None).mprotect(behind, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
        for slots in (1, 3, 7):
            values = whole[: mmap.PAGESIZE].view(np.float32)[-slots * 8 :].reshape(1, 1, slots, 8)
            queries, keys, mask = rows_of([1, 1, 8]), rows_of([1, 1, slots, 8]), np.zeros((1, 1, 1, slots), np.float32)
            assert np.isfinite(attend(queries, keys, values, mask, 1)).all()
            queries[...] = np.nan
            assert np.isnan(attend(queries, keys, values, mask, 1)).all()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)


def test_attention_refuses_what_does_not_fit() -> None:
    """By a sentence."""
    queries, keys, mask = rows_of([1, 2, 16]), rows_of([1, 2, 9, 8], 1), np.zeros((1, 1, 2, 9), np.float32)
    with pytest.raises(OperatorError, match="not more than there are"):
        attend(queries, keys, keys, mask, 2, seen=10)
    with pytest.raises(OperatorError, match="as many rows, heads"):
        attend(queries, keys, keys, mask, 4)
    with pytest.raises(OperatorError, match="mask"):
        attend(queries, keys, keys, mask[..., :8], 2)


@pytest.mark.parametrize("apart", [True, False])
def test_writing(apart: bool) -> None:
    """Each row's slots from its own place on, in the memory of the state."""
    state, new = rows_of([3, 2, 9, 4]), rows_of([3, 4, 8], 1)
    start = np.array([0, 5, 2])
    expected = state.copy()
    for row, place in enumerate(start):
        expected[row, :, place : place + 4] = split_heads(new, 2)[row]
    found = write(state, split_heads(new, 2) if apart else new, start)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(state, expected)


def test_writing_beyond_the_end_is_refused() -> None:
    """Before anything is written."""
    state = rows_of([2, 2, 9, 4])
    before = state.copy()
    for start in ([0, 6], [-1, 0]):
        with pytest.raises(OperatorError, match="room for all"):
            write(state, rows_of([2, 4, 8]), np.array(start))
    np.testing.assert_array_equal(state, before)


@settings(max_examples=40)
@given(data=st.data(), rows=st.integers(1, 3), step=st.integers(1, 6))
def test_moving(data: st.DataObject, rows: int, step: int) -> None:
    """Slots of every row lie from its own place on, as they were before any was moved; the rest stays."""
    slots = np.array(data.draw(st.lists(st.integers(0, 8), min_size=rows * step, max_size=rows * step)))
    start = np.array(data.draw(st.lists(st.integers(0, 9 - step), min_size=rows, max_size=rows)))
    state = rows_of([rows, 2, 9, 4])
    expected = state.copy()
    for row, place in enumerate(start):
        expected[row, :, place : place + step] = state[row][:, slots.reshape(rows, step)[row]]
    found = carry_out("Move", state, slots.reshape(rows, step), start)[0]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(state, expected)


def test_moving_beyond_the_cache_is_refused() -> None:
    """Before anything is moved."""
    state = rows_of([2, 2, 9, 4])
    before = state.copy()
    for slots, start in (([[1, 2], [3, 9]], [0, 0]), ([[1, 2], [3, 4]], [0, 8])):
        with pytest.raises(OperatorError, match="Move expects"):
            carry_out("Move", state, np.array(slots), np.array(start))
    np.testing.assert_array_equal(state, before)
