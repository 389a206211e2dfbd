"""A memory, or rows of any tensor, written into a table: however it is done, the same stands there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longstride.nn.cache import EncoderState, put_rows, row_index
from longstride.ops import additive
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
def test_rows_are_written_the_same_by_a_slice_by_numpy_or_recorded(
    seed: int, rows: int, source: int, more: int, dtype: torch.dtype
) -> None:
    new, like = random_memory(rows, source, seed, dtype), torch.zeros((), dtype=dtype)
    made = [EncoderState.empty(LAYERS, rows, HEADS, source + more, HEAD, like) for _ in range(3)]
    numbers = torch.arange(rows)
    with torch.inference_mode():
        for there, where in zip(made, (slice(None), row_index(numbers, 0, False), numbers), strict=True):
            there.put(where, new)
    for there in made:
        assert torch.equal(there.keys[:, :, :, :source], new.keys)
        assert torch.equal(there.visible[:, :source], new.visible)
        assert not there.visible[:, source:].any()
        assert torch.equal(there.mask, additive(there.visible[:, None, None], like))
        assert all(map(torch.equal, there.buffers, made[0].buffers))


@given(
    seed=st.integers(0, 999),
    dim=st.integers(0, 2),
    there=st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True),
    of=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool]),
)
def test_rows_become_those_of_another_tensor(
    seed: int, dim: int, there: list[int], of: list[int], dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(seed)
    sizes = [2, 3, 2]
    table, given = ([*sizes[:dim], rows, *sizes[dim:]] for rows in (5, 4))
    old, new = (torch.randint(0, 2, size, generator=generator).to(dtype) for size in (table, given))
    to, rows = torch.tensor(there), torch.tensor(of[: len(there)])
    expected = old.clone().index_copy_(dim, to, new.index_select(dim, rows))
    for recorded in (True, False):
        found = old.clone()
        put_rows(found, row_index(to, 5, recorded), new, dim, row_index(rows, 4, recorded))
        assert torch.equal(found, expected)


@pytest.mark.parametrize("changes", [{}, {"heads": 2, "head": 40}, {"heads": 4, "key_value_heads": 2}])
def test_what_tables_take_is_foreseen(changes: dict[str, Any]) -> None:
    """Of heads that are wider together than the model too, as the largest T5's are."""
    model = tiny_model(0, torch.float32, width=16, **changes)
    cache, memory = model.new_cache(3, 21), model.new_memory(2, 9)
    taken = sum(table.nbytes for table in (cache.keys, cache.values, memory.keys, memory.values))
    assert model.table_bytes(3, 21, 2, 9) == taken
