"""A run by minutes ends when they are over, whatever updates take; cut and resumed, it makes the same updates."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from longstride.training.pace import Estimate, Pace

SECONDS = 180.0


def clockwork(seed: int, base: float, slow: float, spikes: int, compiles: float) -> list[float]:
    """Seconds of each update: noise, a phase in which somebody else uses the machine, first occurrences of shapes."""
    draw = random.Random(seed)
    many = int(2 * SECONDS / base) + 20
    first, last = sorted(draw.choices(range(many // 2), k=2))
    took = [base * draw.uniform(0.7, 1.4) * (slow if first <= place < last else 1) for place in range(many)]
    for _ in range(spikes):
        took[draw.randrange(many // 2)] += compiles
    return took


def drive(pace: Pace, took: list[float], step: int = 0, seconds: float = 0.0, most: int = 10**9) -> tuple[int, float]:
    """Make updates like the trainer; return their number and seconds."""
    while step < min(most, pace.updates(step)):
        seconds += took[step]
        step += 1
        pace.look(step, seconds)
    return step, seconds


cases = given(
    seed=st.integers(0, 10**6),
    base=st.floats(0.02, 1.0),
    slow=st.floats(1, 4),
    wrong=st.floats(0.1, 10),
    spikes=st.integers(0, 3),
)


@cases
def test_all_minutes_are_used_and_no_more(seed: int, base: float, slow: float, wrong: float, spikes: int) -> None:
    """However wrong the first estimate was, and though kernels may be compiled on the way."""
    took = clockwork(seed, base, slow, spikes, 4.0)
    first = max(20, round(SECONDS / base * wrong))
    pace = Pace(SECONDS, [Estimate(0, 0.0, first)], lambda estimates: None, 20)
    step, seconds = drive(pace, took)
    assert 0.95 * SECONDS <= seconds <= 1.05 * SECONDS + 2 * max(took[:step])
    places = [pace.place(update) for update in range(1, step + 1)]
    assert all(0 < before <= after for before, after in pairwise(places)), "the rate never goes back"
    assert 0.93 * first <= places[-1] <= first, "the schedule ends with the run"


@cases
def test_a_run_that_was_cut_is_the_same_run(seed: int, base: float, slow: float, wrong: float, spikes: int) -> None:
    """The clock of the second process reads otherwise; up to the last estimate that was kept nothing changes."""
    took, kept = clockwork(seed, base, slow, spikes, 4.0), [Estimate(0, 0.0, max(20, round(SECONDS / base * wrong)))]
    pace = Pace(SECONDS, kept, lambda estimates: kept.__setitem__(slice(None), estimates), 20)
    cut, _ = drive(pace, took, most=random.Random(seed).randrange(1, 200))
    before = [(pace.updates(step), pace.place(step)) for step in range(1, cut + 1)]
    known = kept[-1].step
    saved = random.Random(seed + 1).randint(0, known)
    again = Pace(SECONDS, kept, lambda estimates: None, 20)
    drive(again, [2 * one for one in took], saved, sum(took[:saved]), known)
    assert [(again.updates(step), again.place(step)) for step in range(1, known + 1)] == before[:known]


def test_an_estimate_that_holds_changes_no_rate() -> None:
    pace = Pace(100.0, [Estimate(0, 0.0, 1_000)], lambda estimates: None)
    assert drive(pace, [0.1] * 2_000)[0] == 1_000
    assert all(abs(pace.place(step) - step) < 1e-6 for step in range(1, 1_001))
    assert [Pace(1.0, [Estimate(0, 0.0, 77)], lambda _: None).place(step) for step in (1, 50, 77)] == [1, 50, 77]
