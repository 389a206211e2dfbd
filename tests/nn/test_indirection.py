"""Rows that share their pasts: what a step reads by indirection is what it reads once caches were moved."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import START
from longstride.nn.cache import Cache
from tests.models import tiny_model


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), steps=st.integers(1, 7), rows=st.sampled_from([2, 4, 6]))
@torch.inference_mode()
def test_a_past_in_other_rows_is_one_that_was_moved(seed, steps, rows):
    """Hypotheses of two sources, which change places within their source after every step."""
    model = tiny_model(seed)
    generator = torch.Generator().manual_seed(seed)
    memory = model.encode_source(torch.randint(5, 11, (2, 4), generator=generator), torch.tensor([4, 2]))
    moved, lined = (model.new_cache(rows, 16) for _ in range(2))
    lined.indirection = torch.zeros(rows, lined.longest, dtype=torch.int32)
    width, ids = rows // 2, torch.full((rows, 1), START)
    for step in range(steps):
        start = torch.full((rows,), step)
        expected, found = (model.extend(ids, start, cache, memory, span=16) for cache in (moved, lined))
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
        parents = torch.randint(0, width, (rows,), generator=generator) + torch.arange(rows) // width * width
        moved.shuffle(parents, 16)
        lines = lined.indirection[parents]
        lines[:, step] = parents.int()
        lined.indirection.copy_(lines)
        ids = torch.randint(5, 11, (rows, 1), generator=generator)


def test_a_step_of_several_slots_finds_its_own_where_it_wrote_them():
    model = tiny_model(3)
    memory = model.encode_source(torch.tensor([[5, 6, 3]]), torch.tensor([3]))
    whole, lined = (model.new_cache(2, 16) for _ in range(2))
    lined.indirection = torch.zeros(2, lined.longest, dtype=torch.int32)  # all of the past lies in the first row
    past, ids = torch.tensor([[START, 7], [START, 7]]), torch.tensor([[8, 9, 5], [6, 10, 7]])
    start = torch.zeros(2, dtype=torch.int64)
    with torch.inference_mode():
        for cache in (whole, lined):
            model.extend(past, start, cache, memory)
        lined.keys[:, 1, :, :2] = 0.0
        expected, found = (model.extend(ids, start + 2, cache, memory) for cache in (whole, lined))
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


@given(seed=st.integers(0, 1000), slots=st.integers(1, 5), half=st.booleans(), data=st.data())
def test_rows_that_move_one_by_one_move_as_all_do(seed, slots, half, data):
    rows = 4
    parents = data.draw(st.lists(st.integers(0, rows - 1), min_size=rows, max_size=rows))
    kind = torch.bfloat16 if half else torch.float64
    values = torch.randn(2, 3, rows, 2, 5, 4, generator=torch.Generator().manual_seed(seed)).to(kind)
    moved, expected = (Cache(*values.clone().unbind()) for _ in range(2))
    there = [row for row, parent in enumerate(parents) if row != parent]
    moved.move(there, [parents[row] for row in there], slots)
    expected.shuffle(torch.tensor(parents), slots)
    assert torch.equal(moved.keys, expected.keys)
    assert torch.equal(moved.values, expected.values)
