from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from longstride.distillation.decoding import grouped
from longstride.distillation.options import DistillOptions

lengths = st.lists(st.integers(2, 200), max_size=60)


@given(lengths, st.integers(1, 20), st.integers(1, 16), st.integers(1, 4000))
def test_every_row_is_in_one_group_that_fits(sources: list[int], group_lines: int, capacity: int, tokens: int) -> None:
    options = DistillOptions(group_lines=group_lines, capacity=capacity, tokens=tokens)
    outputs = [2 * length + 20 for length in sources]
    groups = grouped(sources, outputs, options)
    assert sorted(row for group in groups for row in group.rows) == list(range(len(sources)))
    for group in groups:
        assert 1 <= len(group.rows) <= group_lines
        assert 1 <= group.capacity <= min(capacity, len(group.rows))
        assert max(sources[row] for row in group.rows) <= group.width
        needed = group.width + max(outputs[row] for row in group.rows)
        assert group.capacity == 1 or group.capacity * needed <= tokens
        # Unlike lengths only where slots would have stood idle.
        longest = sources[group.rows[0]]
        assert all(sources[row] >= 0.75 * longest - 4 for row in group.rows[group.capacity :])


@given(lengths)
def test_longest_come_first(sources: list[int]) -> None:
    groups = grouped(sources, sources, DistillOptions(group_lines=7, capacity=3))
    order = [sources[row] for group in groups for row in group.rows]
    assert order == sorted(sources, reverse=True)


def test_unlike_lengths_part_once_the_table_is_full() -> None:
    sources = [100] * 4 + [20] * 4
    groups = grouped(sources, sources, DistillOptions(capacity=4))
    assert [group.rows for group in groups] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    # A table that is not full yet takes shorter sentences in rather than stand idle.
    assert len(grouped(sources, sources, DistillOptions(capacity=5))) == 2
    assert len(grouped(sources, sources, DistillOptions(capacity=8))) == 1
