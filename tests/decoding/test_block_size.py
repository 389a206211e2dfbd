"""Whether to draft where each way is recorded: near the better of both, never much slower than no draft at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.verification.block_size import MEMORY, PROBES, Pace
from longstride.verification.fates import Fates
from longstride.verification.thrift import sizes

SENTENCE = 25
"""iterations"""
COSTS: dict[str, Callable[[int], float]] = {
    "flat, with a drafter": lambda block: 1.0 if block == 0 else 1.3 + 0.01 * block,
    "in proportion": lambda block: 1 + 0.5 * block,
    "a dear drafter": lambda block: 1.0 if block == 0 else 3 + 0.1 * block,
    "a tenth a token": lambda block: 1 + 0.1 * block,
}


def pace_of(most: int) -> Pace:
    return Pace(most, Fates(most, MEMORY, by_row=True))


def tokens_per_second(most: int, chance: float, cost: Callable[[int], float], fixed: int | None = None) -> float:
    """Of many sentences with drafts whose tokens stand with a certain chance, by the chosen block or a fixed one."""
    rng, pace = random.Random(0), pace_of(most)
    tokens, seconds = 0, 0.0
    for iteration in range(1500):
        if iteration % SENTENCE == 0:
            begun = tokens
            pace.begin()
        block, told = pace.next(1 + iteration % SENTENCE) if fixed is None else (fixed, False)
        stood = 0
        while stood < block and rng.random() < chance:
            stood += 1
        tokens, seconds = tokens + stood + 1, seconds + cost(block)
        if told:
            pace.observe(block, [stood], cost(block))
        elif fixed is None:
            pace.passed(block, 1)
        if block and fixed is None and (iteration + 1) % SENTENCE == 0:
            pace.waited(block, (tokens - begun) / SENTENCE)
    return tokens / seconds


@pytest.mark.parametrize("most", [1, 3, 7, 25])
@pytest.mark.parametrize("chance", [0.0, 0.2, 0.5, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("cost", COSTS)
def test_what_is_chosen_is_near_the_best_and_never_much_slower_than_greedy(most, chance, cost):
    found = tokens_per_second(most, chance, COSTS[cost])
    fixed = {block: tokens_per_second(most, chance, COSTS[cost], block) for block in (0, most)}
    assert found > 0.88 * max(fixed.values())
    assert found > 0.93 * fixed[0]


@given(st.integers(1, 40))
def test_sizes_are_few_and_span_all(most):
    found = sizes(most)
    assert found[0] == 0
    assert found[-1] == most
    assert len(found) <= 8
    assert found == sorted(set(found))


def test_one_slow_time_is_forgiven():
    """A cost is the least of a few: a hiccup in the first one does not make drafts look dear."""
    pace, asked = pace_of(8), []
    for number in range(60):
        block, told = pace.next(1 + number)
        asked.append(block)
        if told:
            pace.observe(block, [block], 50.0 if number == 0 else 1.0 + 0.01 * block)
    assert pace.block == 8
    assert asked.count(8) > 50


def test_a_change_of_mind_becomes_harder():
    """Where both ways are all but equal, chance does not make it go back and forth."""
    rng, pace, changes = random.Random(1), pace_of(10), []
    for iteration in range(20_000):
        if iteration % SENTENCE == 0:
            pace.begin()
        (block, told), before = pace.next(1 + iteration % SENTENCE), pace.block
        stood = 0
        while stood < block and rng.random() < 0.7:
            stood += 1
        if told:
            pace.observe(block, [stood], {0: 1.0, 10: 3.25}[block] * rng.uniform(1, 1.1))
        changes.append(pace.block != before)
    assert sum(changes) <= 16
    assert sum(changes[-10_000:]) <= 4


def batch(pace: Pace, share: float, rows: int = 8, cost: float = 0.2) -> list[int]:
    """One whose drafts stand to this share; what was drafted, iteration by iteration."""
    pace.begin()
    asked = []
    for iteration in range(1, SENTENCE + 1):
        block, told = pace.next(iteration)
        if told:
            pace.observe(block, [int(share * block)] * rows, 1.0 + cost * block)
        else:
            pace.passed(block, 1)
        asked.append(block)
    if all(asked):
        pace.waited(asked[0], 1 + int(share * asked[0]))
    return asked


@pytest.mark.parametrize("rows", [1, 8, 64])
def test_when_drafts_become_good_or_bad_the_block_follows(rows):
    pace = pace_of(8)
    for share, block in ((1.0, 8), (0.0, 0), (1.0, 8), (0.1, 0)):
        for _ in range(120 if rows == 1 else 40):
            batch(pace, share, rows)
        assert pace.block == block


@pytest.mark.parametrize("cost", [0.02, 0.2, 2.0])
def test_where_drafts_do_not_pay_looking_at_them_takes_next_to_no_time(cost):
    pace = pace_of(8)
    batch(pace, 0.0, cost=cost)
    asked = [batch(pace, 0.0, cost=cost) for _ in range(400)]
    assert {sum(map(bool, blocks)) for blocks in asked} <= {0, PROBES}
    seconds = sum(1.0 + cost * block for blocks in asked for block in blocks)
    assert seconds < 1.02 * 400 * SENTENCE
    assert any(map(any, asked))


def test_those_who_follow_measure_nothing():
    """What they tell of drafts counts; measuring goes on when there is somebody to do it."""
    pace = pace_of(8)
    for _ in range(50):
        pace.observe(pace.block, [0], None)
    assert (pace.block, pace.next(1), pace.explored) == (8, (8, True), False)


@given(st.lists(st.tuples(st.integers(1, 6), st.lists(st.integers(0, 6), min_size=1, max_size=4)), max_size=12))
def test_more_drafted_is_never_less_expected(iterations):
    fates = Fates(6, 0.9)
    for block, stood in iterations:
        fates.add(block, [min(block, one) for one in stood])
    expected = [fates.tokens(block) for block in range(7)]
    assert expected[0] == 1
    assert all(0 <= after - before <= 1 for before, after in pairwise(expected))


@pytest.mark.parametrize("seen", [3, 6])
def test_what_is_expected_is_what_came(seen):
    """Tokens that stand more rarely the later they are, seen in drafts of one size: for those up to it, the mean."""
    rng, fates = random.Random(3), Fates(6, 1.0)
    brought = dict.fromkeys(range(seen + 1), 0)
    for _ in range(4000):
        stood = 0
        while stood < 6 and rng.random() < 0.9 - 0.1 * stood:
            stood += 1
        fates.add(seen, [min(stood, seen)])
        for block in brought:
            brought[block] += 1 + min(stood, block)
    for block, tokens in brought.items():
        assert fates.tokens(block) == pytest.approx(tokens / 4000, rel=0.01)


def test_old_fates_are_forgotten_however_many_there_are():
    fates = Fates(4, 0.9)
    for stood in (0, 4):
        for _ in range(2000):
            fates.add(4, [stood])
        assert fates.tokens(4) == pytest.approx(1 + stood, abs=0.6)


def test_without_a_clock_it_stays():
    pace = pace_of(8)
    for _ in range(5):
        pace.observe(8, [0], None)
    assert pace.next(6) == (pace.block, True) == (8, True)
