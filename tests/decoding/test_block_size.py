"""The block that pays where sizes are recorded: near the best of the few, never much slower than no draft at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.verification.block_size import MEMORY, Pace, few_sizes, sizes
from longstride.verification.fates import Fates

COSTS: dict[str, Callable[[int], float]] = {
    "flat, with a drafter": lambda block: 1.0 if block == 0 else 1.3 + 0.01 * block,
    "in proportion": lambda block: 1 + 0.5 * block,
    "a dear drafter": lambda block: 1.0 if block == 0 else 3 + 0.1 * block,
    "a tenth a token": lambda block: 1 + 0.1 * block,
}


def pace_of(most: int) -> Pace:
    return Pace(most, Fates(most, MEMORY))


def tokens_per_second(most: int, chance: float, cost: Callable[[int], float], fixed: int | None = None) -> float:
    """Of a long run with drafts whose tokens stand with a certain chance, by the chosen block or a fixed one."""
    rng, pace = random.Random(0), pace_of(most)
    tokens, seconds = 0, 0.0
    for _ in range(1500):
        block = pace.next() if fixed is None else fixed
        stood = 0
        while stood < block and rng.random() < chance:
            stood += 1
        tokens, seconds = tokens + stood + 1, seconds + cost(block)
        if fixed is None:
            pace.observe(block, [stood], cost(block))
    return tokens / seconds


@pytest.mark.parametrize("most", [1, 3, 7, 25])
@pytest.mark.parametrize("chance", [0.0, 0.2, 0.5, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("cost", COSTS)
def test_what_is_chosen_is_near_the_best_and_never_much_slower_than_greedy(most, chance, cost):
    found = tokens_per_second(most, chance, COSTS[cost])
    fixed = {block: tokens_per_second(most, chance, COSTS[cost], block) for block in few_sizes(most)}
    assert found > 0.8 * max(fixed.values())
    assert found > 0.9 * fixed[0]


@given(st.integers(1, 40))
def test_sizes_are_few_and_span_all(most):
    found = sizes(most)
    assert found[0] == 0
    assert found[-1] == most
    assert len(found) <= 8
    assert found == sorted(set(found))


@given(st.integers(1, 40))
def test_where_sizes_are_recorded_there_are_three(most):
    found = few_sizes(most)
    assert found[0] == 0
    assert found[-1] == most
    assert len(found) == min(3, most + 1)
    assert set(found) <= set(sizes(most))


def test_one_slow_time_is_forgiven():
    """A cost is the least of a few: a hiccup in the first one does not make a size look dear."""
    pace, asked = pace_of(8), []
    for number in range(60):
        block = pace.next()
        asked.append(block)
        pace.observe(block, [block], 50.0 if number == 0 else 1.0 + 0.01 * block)
    assert pace.block == 8
    assert asked.count(8) > 40


def test_a_change_of_mind_becomes_harder():
    """Where two sizes are all but equal, chance does not make it go back and forth."""
    rng, pace, changes = random.Random(1), pace_of(10), []
    for _ in range(20_000):
        block, before = pace.next(), pace.block
        stood = 0
        while stood < block and rng.random() < 0.7:
            stood += 1
        pace.observe(block, [stood], {0: 1.0, 4: 2.0, 10: 2.35}[block] * rng.uniform(1, 1.2))
        changes.append(pace.block != before)
    assert sum(changes) <= 4
    assert sum(changes[-10_000:]) <= 1


def test_when_drafts_become_good_or_bad_the_block_follows():
    pace = pace_of(8)

    def run(share: float, iterations: int) -> int:
        for _ in range(iterations):
            block = pace.next()
            pace.observe(block, [int(share * block)], 1.0 + 0.2 * block)
        return pace.block

    assert run(1.0, 100) == 8
    assert run(0.0, 2000) == 0


def test_those_who_follow_measure_nothing():
    """What they tell of drafts counts; a trial goes on when there is somebody to make it."""
    pace = pace_of(8)
    for _ in range(50):
        pace.observe(pace.block, [0], None)
    assert (pace.block, pace.next(), pace.explored) == (8, 8, False)


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
    assert pace.next() == pace.block == 8
