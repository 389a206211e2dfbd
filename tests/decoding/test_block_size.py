"""The block that pays: near the best of all fixed ones, and never much slower than no draft at all."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.verification.block_size import Pace, sizes

COSTS: dict[str, Callable[[int], float]] = {
    "flat, with a drafter": lambda block: 1.0 if block == 0 else 1.3 + 0.01 * block,
    "in proportion": lambda block: 1 + 0.5 * block,
    "a dear drafter": lambda block: 1.0 if block == 0 else 3 + 0.1 * block,
    "a tenth a token": lambda block: 1 + 0.1 * block,
}


def tokens_per_second(most: int, chance: float, cost: Callable[[int], float], fixed: int | None = None) -> float:
    """Of a long run with drafts whose tokens stand with a certain chance, by the chosen block or a fixed one."""
    rng, pace = random.Random(0), Pace(most)
    tokens, seconds = 0, 0.0
    for _ in range(500):
        block = pace.block if fixed is None else fixed
        stood = 0
        while stood < block and rng.random() < chance:
            stood += 1
        tokens, seconds = tokens + stood + 1, seconds + cost(block)
        if fixed is None:
            pace.observe([stood], [block], cost(block))
    return tokens / seconds


@pytest.mark.parametrize("most", [1, 3, 7, 25])
@pytest.mark.parametrize("chance", [0.0, 0.2, 0.5, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("cost", COSTS)
def test_what_is_chosen_is_near_the_best_and_never_much_slower_than_greedy(most, chance, cost):
    found = tokens_per_second(most, chance, COSTS[cost])
    assert found > 0.75 * max(tokens_per_second(most, chance, COSTS[cost], block) for block in range(most + 1))
    assert found > 0.87 * tokens_per_second(most, chance, COSTS[cost], 0)


@given(st.integers(1, 40))
def test_sizes_are_few_and_span_all(most):
    found = sizes(most)
    assert found[0] == 0
    assert found[-1] == most
    assert len(found) <= 8
    assert found == sorted(set(found))


def test_without_a_clock_it_stays():
    pace = Pace(8)
    for _ in range(5):
        pace.observe([0], [8], None)
    assert pace.block == 8
