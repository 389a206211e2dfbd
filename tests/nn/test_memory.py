"""A memory written into a table: whole by a slice, or row by row, it is the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longstride.nn.cache import EncoderState
from tests.models import tiny_model

LAYERS, HEADS, HEAD = 2, 3, 4


def random_memory(rows: int, source: int, seed: int, dtype: torch.dtype) -> EncoderState:
    generator = torch.Generator().manual_seed(seed)
    keys, values = (torch.randn(LAYERS, rows, HEADS, source, HEAD, generator=generator, dtype=dtype) for _ in range(2))
    return EncoderState(keys, values, torch.rand(rows, source, generator=generator) < 0.7)


@given(
    seed=st.integers(0, 999),
    rows=st.integers(1, 3),
    source=st.integers(1, 6),
    more=st.integers(0, 3),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_all_rows_by_a_slice_or_by_their_numbers(
    seed: int, rows: int, source: int, more: int, dtype: torch.dtype
) -> None:
    new = random_memory(rows, source, seed, dtype)
    by_slice, by_numbers = (random_memory(rows, source + more, seed + 1, dtype) for _ in range(2))
    with torch.inference_mode():
        by_slice.put(slice(None), new)
        by_numbers.put(torch.arange(rows), new)
    assert torch.equal(by_slice.keys, by_numbers.keys)
    assert torch.equal(by_slice.values, by_numbers.values)
    assert torch.equal(by_slice.visible, by_numbers.visible)
    assert torch.equal(by_slice.keys[:, :, :, :source], new.keys)


@pytest.mark.parametrize("changes", [{}, {"heads": 2, "head": 40}, {"heads": 4, "key_value_heads": 2}])
def test_what_tables_take_is_foreseen(changes: dict[str, Any]) -> None:
    """Of heads that are wider together than the model too, as the largest T5's are."""
    model = tiny_model(0, torch.float32, width=16, **changes)
    cache, memory = model.new_cache(3, 21), model.new_memory(2, 9)
    taken = sum(table.nbytes for table in (cache.keys, cache.values, memory.keys, memory.values))
    assert model.table_bytes(3, 21, 2, 9) == taken
