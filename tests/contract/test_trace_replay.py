from __future__ import annotations

import json

import torch
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import EOS, Event, Step, Trace, TraceBuilder

outputs = st.lists(st.integers(5, 99), max_size=12)


@given(outputs, st.randoms(use_true_random=False), st.integers(1, 5))
def test_final_writes_in_any_order_replay_to_the_output(output: list[int], random, most: int) -> None:
    cells = list(enumerate([*output, EOS]))
    random.shuffle(cells)
    events = []
    while cells:
        width = random.randint(1, most)
        written, cells = cells[:width], cells[width:]
        # Provisional writes, however wrong, leave no trace in the output.
        events.append(Event(tuple(p for p, _ in written), (77,) * len(written), 0, 0, final=False))
        events.append(Event(tuple(p for p, _ in written), tuple(t for _, t in written), width, 1, final=True))
    trace = Trace(tuple(events))
    assert trace.replay() == output
    assert trace.committed == len(output) + 1
    assert trace.iterations == len(events)


def test_statistics_are_sums_over_the_steps() -> None:
    trace = Trace((Event((0, 1), (5, 6), 3, 1, True), Event((2,), (7,), 3, 0, False), Event((2,), (EOS,), 3, 0, True)))
    assert trace.committed_per_step == [2, 0, 1]
    assert [event.accepted for event in trace.events] == [1, 0, 0]
    assert (trace.drafted, trace.accepted, trace.committed) == (9, 1, 3)
    assert json.loads(json.dumps(trace.as_dict()))["steps"][0] == {
        "positions": [0, 1],
        "ids": [5, 6],
        "drafted": 3,
        "accepted": 1,
        "draft": [],
    }


def test_a_call_that_only_proposes_is_left_out_of_the_mean_block() -> None:
    proposing = Event((0,), (5,), 0, 0, True)
    verifying = Event((1, 2, 3), (6, 7, EOS), 3, 2, True, draft=(6, 7, 9))
    assert Trace((proposing, verifying)).mean_block == 3.0
    assert Trace((proposing, proposing)).mean_block == 1.0  # no drafts at all: greedy search
    assert Trace(()).mean_block == 0.0


def test_steps_are_sorted_by_sentence() -> None:
    builder = TraceBuilder()
    builder.add(
        Step(
            ticket=torch.tensor([4, 9, 0]),
            active=torch.tensor([True, True, False]),
            position=torch.tensor([[0, 1], [3, 4], [0, 0]]),
            ids=torch.tensor([[5, 6], [7, 8], [1, 1]]),
            written=torch.tensor([[True, True], [False, True], [True, True]]),
            drafted=torch.tensor([2, 2, 2]),
            accepted=torch.tensor([1, 0, 2]),
        )
    )
    assert builder.trace(4) == Trace((Event((0, 1), (5, 6), 2, 1, True),))
    assert builder.trace(9) == Trace((Event((4,), (8,), 2, 0, True),))
    assert builder.trace(0).iterations == 0
