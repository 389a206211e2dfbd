"""A memory written into a table: whole by a slice, or row by row, it is the same."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from longstride.nn.cache import EncoderState

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
