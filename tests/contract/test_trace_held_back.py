"""Writes that come later than the iteration they belong to, and positions that are only in the right order."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import EOS, Event, Step, Trace, TraceBuilder


def step(ids: list[int], position: list[int], when: list[int] | None = None) -> Step:
    none = torch.zeros(1, dtype=torch.int64)
    return Step(
        none,
        torch.ones(1, dtype=torch.bool),
        torch.tensor([position], dtype=torch.int64),
        torch.tensor([ids], dtype=torch.int64),
        torch.ones(1, len(ids), dtype=torch.bool),
        none,
        none,
        when=None if when is None else torch.tensor([when]),
    )


def trace(*steps: Step) -> Trace:
    builder = TraceBuilder()
    for one in steps:
        builder.add(one)
    return builder.trace(0)


def test_what_was_held_back_is_filed_where_it_belongs():
    found = trace(step([], []), step([], []), step([5, 6, 7, EOS], [0, 1, 2, 3], [0, 1, 0, 1]))
    assert found.events == (
        Event((0, 2), (5, 7), 0, 0, True),
        Event((1, 3), (6, EOS), 0, 0, True),
        Event((), (), 0, 0, True),
    )
    assert found.replay() == [5, 6, 7]
    assert found.committed_per_step == [2, 2, 0]


def test_gaps_are_closed_when_the_sentence_ends():
    found = trace(step([5, 9], [0, 199]), step([6, EOS], [1, 400]))
    assert [event.positions for event in found.events] == [(0, 2), (1, 3)]
    assert found.replay() == [5, 6, 9]
    open_end = trace(step([5, 9], [0, 199]))
    assert open_end.events[0].positions == (0, 199)  # who knows what comes between


@given(st.lists(st.integers(5, 99), max_size=9), st.lists(st.integers(1, 50), min_size=10, max_size=10))
def test_positions_without_gaps_stay_and_others_only_need_order(output, gaps):
    places = list(range(len(output) + 1))
    plain = trace(*(step([id], [place]) for id, place in zip([*output, EOS], places, strict=True)))
    assert [event.positions[0] for event in plain.events] == places
    far = [sum(gaps[: place + 1]) for place in places]
    assert trace(*(step([id], [place]) for id, place in zip([*output, EOS], far, strict=True))) == plain
