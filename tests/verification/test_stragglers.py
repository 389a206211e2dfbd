"""A batch ends with its slowest sentence: what is expected of drafts knows it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.verification import pacing
from longstride.verification.block_size import Pace
from longstride.verification.fates import Fates
from longstride.verification.paced import Terms
from longstride.verification.pacing import Paces
from longstride.verification.stragglers import FEW, Batch, Stragglers
from tests.verification.test_pacing import Clock, Fake

LENGTH = 40


def run(batch: Batch, blocks: list[int], lengths: list[int]) -> tuple[int, float] | None:
    for block in blocks:
        batch.iterate(block)
    for length in lengths[:-1]:
        assert batch.finish([length], False) is None
    return batch.finish(lengths[-1:], True)


@given(st.integers(1, 10), st.integers(1, 50), st.lists(st.integers(1, 99), min_size=1, max_size=8))
def test_a_batch_is_as_long_as_its_longest_output(block, iterations, lengths):
    batch = Batch()
    batch.begin(True)
    assert run(batch, [block] * iterations, lengths) == (block, max(lengths) / iterations)


def test_only_batches_that_came_together_and_drafted_throughout_tell_something():
    batch = Batch()
    batch.begin(True)
    assert run(batch, [0] * 5, [9, 12]) is None
    batch.begin(True)
    assert run(batch, [4, *[0] * (FEW + 1), 4], [9, 12]) is None
    batch.begin(True)
    assert run(batch, [4, 0, 4, 0, 4], [9, 11]) == (4, 3.0)
    batch.begin(True)
    batch.iterate(4)
    batch.begin(False)  # one that is done makes room for another
    assert run(batch, [4, 4], [9, 12]) is None
    batch.begin(True)
    assert run(batch, [4, 4, 4], [9, 12]) == (4, 4.0)


@given(st.floats(1.01, 11), st.lists(st.floats(0, 1), max_size=30))
def test_what_is_left_lies_between_one_token_and_the_mean(mean, shares):
    stragglers = Stragglers(8)
    assert stragglers.tokens(mean) == pytest.approx(mean)
    for share in shares:
        stragglers.observe(1 + share * (mean - 1), mean)
        assert 1 <= stragglers.tokens(mean) <= mean * (1 + 1e-9)
    for _ in range(40):
        stragglers.observe(1 + 0.5 * (mean - 1), mean)
    assert stragglers.tokens(mean) == pytest.approx(1 + 0.5 * (mean - 1), rel=1e-3)


def test_drafts_that_bring_nothing_say_nothing_of_stragglers():
    stragglers = Stragglers(8)
    stragglers.observe(1.0, 1.0)
    assert stragglers.left == 1


def test_a_batch_without_drafts_says_nothing_either():
    pace = Pace(10, Fates(10, 0.99))
    pace.waited(0, 1.0)
    assert pace._stragglers.left == 1


def batches(clock: Clock, stands: list[int], cost: Callable[[int], float], count: int) -> list[float]:
    """The time of each batch of as many sentences, for each of which so many drafted tokens stand every time."""
    paces, table, times = Paces(10), Fake(), []
    for _ in range(count):
        paced, begun, left = paces.join(table, len(stands), Terms(True)), clock.now, [LENGTH] * len(stands)
        paced.encode(True)
        while any(left):
            block = paced.choose(1)
            paced.begin(block, 1)
            table.blocks.add(block)
            clock.now += cost(block)
            if not paced.settled:
                paced.end([min(block, stood) for stood, length in zip(stands, left, strict=True) if length])
            before, left = (
                left,
                [max(0, length - 1 - min(block, stood)) for stood, length in zip(stands, left, strict=True)],
            )
            done = [LENGTH for old, new in zip(before, left, strict=True) if old and not new]
            if done:
                paced.finish(done, not any(left))
        times.append(clock.now - begun)
    return times


@pytest.fixture
def clock(monkeypatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(pacing, "clock", found)
    return found


def test_one_slow_sentence_in_eight_decides(clock):
    """Six tokens on the mean and three times the cost would pay, but one sentence gets two: greedy is faster."""
    times = batches(clock, [1, *[6] * 7], lambda block: 3.0 if block else 1.0, 60)
    assert times[0] > 1.2 * LENGTH
    assert max(times[-10:]) < 1.1 * LENGTH


def test_where_all_are_alike_drafts_stay(clock):
    times = batches(clock, [6] * 8, lambda block: 3.0 if block else 1.0, 60)
    assert max(times[-10:]) < 0.65 * LENGTH
