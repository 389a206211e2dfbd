"""How long sentences wait: known early, right for rows that are given up at their time, and followed when they slow.
So what is taken in is done in time, however much comes."""

from __future__ import annotations

import heapq
import random
import threading

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, Hypothesis, Limits
from longstride.serving import scheduler as module
from longstride.serving.errors import OverloadedError, ServingError
from longstride.serving.scheduler import Scheduler, Sentence
from longstride.serving.wait_time import WaitTime
from tests.fakes import CopyDecoder


@given(st.integers(1, 40), st.integers(1, 300), st.floats(0.01, 10), st.floats(0, 1))
def test_the_last_of_those_who_wait_is_done_about_when_it_is_said(
    rows: int, waiting: int, stay: float, phase: float
) -> None:
    """Rows that are given up one after another, each sentence staying as long as the next."""
    wait = WaitTime(rows)
    wait.stayed(stay, 100.0)
    told = wait.seconds(waiting, 100.0)
    free = [stay * ((row + phase) / rows) for row in range(rows)]  # when each row is given up
    heapq.heapify(free)
    for _ in range(waiting):
        done = heapq.heappop(free) + stay
        heapq.heappush(free, done)
    assert abs(told - done) <= 1.001 * stay


@given(st.lists(st.floats(0.1, 5), min_size=1, max_size=30), st.floats(5, 100))
def test_those_in_rows_that_get_old_are_believed(stays: list[float], age: float) -> None:
    wait = WaitTime(4)
    assert wait.seconds(8, 7.0) == 0
    for stay in stays:
        wait.stayed(stay, 7.0)
    assert min(stays) * 3 <= wait.seconds(8, 7.0) + 1e-9 <= max(stays) * 3 + 2e-9
    wait.in_rows([10.0, 12.0])
    assert abs(wait.seconds(8, 11.0 + age) - age * 3) < 1e-6
    wait.in_rows([])
    assert wait.seconds(8, 11.0 + age) <= max(stays) * 3 + 1e-9


@given(st.floats(0.1, 30))
def test_what_was_long_ago_is_no_reason_to_refuse(stay: float) -> None:
    """A stay that a compiler made long, on a server that is idle since: it fades, from when others would have ended."""
    wait = WaitTime(32)
    wait.stayed(stay, 10.0)
    assert wait.seconds(64, 10.0 + stay) == pytest.approx(wait.seconds(64, 10.0))
    assert wait.room(15, 10.0 + stay + 100) >= 2000
    wait.stayed(0.1, 10.0 + stay + 100)
    assert wait.seconds(32, 10.0 + stay + 100) < 0.3
    wait.stayed(stay, 10.0 + stay + 100)
    wait.forget()
    assert wait.seconds(64, 10.0 + stay + 100) == 0


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_warm_up_that_compiled_is_no_reason_to_refuse_a_burst(forgotten: bool) -> None:
    """500 short requests on an idle server gave 495 refusals: its warm-up had taken 16 seconds."""
    simulated = Simulated(32, 1.0, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "monotonic", lambda: simulated.now)
        simulated.come(64, 600, 16, 16)
        while simulated.scheduler.live or simulated.scheduler.waiting:
            simulated.iterate()
        if forgotten:
            simulated.scheduler.forget_times()
        simulated.seconds = 0.01
        for _ in range(5):
            simulated.come(100, 30)
            simulated.iterate()
    assert simulated.refused > 400 if not forgotten else simulated.refused == 0


class Simulated:
    """A scheduler whose iterations take as long as they are told to, by a clock of its own."""

    def __init__(self, rows: int, seconds: float, seed: int) -> None:
        self.now, self.seconds, self._chance = 1000.0, seconds, random.Random(seed)
        self.scheduler = Scheduler(CopyDecoder(), Limits(max_ratio=100), 64, rows=rows, most_waiting=10**6)
        self.scheduler._thread = threading.Thread()  # none is to be started: iterations are the test's
        self.taken, self.refused = list[list[float]](), 0

    def come(self, number: int, timeout: float, shortest: int = 3, longest: int = 30) -> None:
        """Sentences of so many tokens, each by itself."""
        for _ in range(number):
            deadline, ended = self.now + timeout, [self.now + timeout]

            def done(told: list[Hypothesis] | ServingError, ended: list[float] = ended) -> None:
                ended.append(self.now if isinstance(told, list) else float("inf"))

            ids = [5] * (self._chance.randint(shortest, longest) - 1) + [EOS]
            try:
                self.scheduler.submit([Sentence(ids, deadline, done)])
                self.taken.append(ended)
            except OverloadedError:
                self.refused += 1

    def iterate(self) -> None:
        self.now += self.seconds
        self.scheduler.iterate()


@settings(max_examples=5)
@given(st.integers(8, 16), st.floats(0.001, 0.05), st.floats(1, 1.4), st.integers(0, 10**6))
@example(13, 0.03125, 1.375, 0)
@example(9, 0.023619323677760415, 1.3724551923521349, 344038)
def test_of_ten_times_too_much_what_is_taken_in_is_done_in_time(
    rows: int, seconds: float, slower: float, seed: int
) -> None:
    """Though all becomes slower when the queue is full; and no row is left empty."""
    simulated = Simulated(rows, seconds, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "monotonic", lambda: simulated.now)
        simulated.come(2 * rows, 1e6, 16, 16)  # by which a server warms up
        while simulated.scheduler.live or simulated.scheduler.waiting:
            simulated.iterate()
        per_iteration, chance = 10 * rows / 17, random.Random(seed)
        for number in range(240):
            if number == 100:
                simulated.seconds *= slower
            simulated.come(int(per_iteration + chance.random()), 150 * seconds)
            simulated.iterate()
            assert number < 20 or simulated.scheduler.waiting > rows
        while simulated.scheduler.live or simulated.scheduler.waiting:
            simulated.iterate()
    assert all(len(times) == 2 for times in simulated.taken)
    late = [times for times in simulated.taken if times[1] > times[0]]
    assert not late
    assert simulated.refused > 3 * len(simulated.taken)
