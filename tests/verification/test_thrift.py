"""The block that pays where any size may be had: near the best of all, never slower than greedy but for trials."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.verification.costs import STALE, TRIALS, Costs, about
from longstride.verification.thrift import SHARE, Thrift, sizes

Cost = Callable[[int, int], float]
"""(rows, block) -> seconds"""

COSTS: dict[str, Cost] = {
    "flat, with a drafter": lambda rows, block: 1.0 if block == 0 else 1.3 + 0.01 * block,
    "in proportion": lambda rows, block: 1 + 0.5 * block,
    "a dear drafter": lambda rows, block: 1.0 if block == 0 else 3 + 0.1 * block,
    "a tenth a token": lambda rows, block: 1 + 0.1 * block,
}


def processor(rows: int, block: int) -> float:
    """Milliseconds about as a small model takes on two cores: drafts pay for one row or two."""
    return 1.8 + 0.6 * rows * (1 + block) + (1.0 + 0.4 * rows if block else 0)


class Run:
    """Iterations with drafts whose tokens stand with a certain chance, by what thrift chooses or by a fixed block."""

    def __init__(self, most: int, chance: float, cost: Cost, fixed: int | None = None) -> None:
        self.thrift = Thrift(most)
        self.asked: list[int] = []
        self.tokens, self.seconds = 0.0, 0.0
        self._rng, self._chance, self._cost, self._fixed = random.Random(0), chance, cost, fixed

    def go(self, iterations: int, rows: int = 1) -> Run:
        for _ in range(iterations):
            choice = self.thrift.choose(rows)
            block = choice.block if self._fixed is None else self._fixed
            stood = [self._stood(block) for _ in range(rows)]
            seconds = self._cost(rows, block)
            self.tokens += 1 + sum(stood) / rows
            self.seconds += seconds
            self.asked.append(block)
            self.thrift.observe(choice, rows, stood, seconds)
        return self

    def _stood(self, block: int) -> int:
        stood = 0
        while stood < block and self._rng.random() < self._chance:
            stood += 1
        return stood

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds


@pytest.mark.parametrize("most", [1, 3, 7, 25])
@pytest.mark.parametrize("chance", [0.0, 0.2, 0.5, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("cost", COSTS)
def test_what_is_chosen_is_near_the_best_and_never_much_slower_than_greedy(most, chance, cost):
    found = Run(most, chance, COSTS[cost]).go(1000).speed
    fixed = {block: Run(most, chance, COSTS[cost], block).go(1000).speed for block in sizes(most)}
    assert found > 0.87 * max(fixed.values())
    assert found > 0.97 * fixed[0]


@settings(max_examples=40, deadline=None)
@given(
    most=st.integers(1, 12),
    chance=st.floats(0, 1),
    rows=st.lists(st.sampled_from([1, 2, 3, 8, 32]), min_size=1, max_size=4),
    fixed=st.floats(0, 3),
    drafting=st.floats(0, 4),
    width=st.floats(0, 2),
)
def test_whatever_steps_cost_it_is_hardly_slower_than_greedy(most, chance, rows, fixed, drafting, width):
    """A step, a drafter (up to four steps) and a slot cost anything, tables of several sizes take turns."""

    def cost(rows: int, block: int) -> float:
        step = 0.1 + fixed + width * rows
        return step + width * rows * block + (drafting * step if block else 0)

    found, greedy = Run(most, chance, cost), Run(most, chance, cost, 0)
    for turn in range(60):
        for run in (found, greedy):
            run.go(40, rows[turn % len(rows)])
    assert found.speed > 0.95 * greedy.speed


def test_on_a_processor_few_rows_draft_and_many_do_not():
    run = Run(4, 0.83, processor)
    asked = {rows: Counter(run.go(400, rows).asked[-400:]) for rows in (1, 8, 32, 64)}
    assert asked[1][4] > 350
    for rows in (8, 32, 64):
        assert asked[rows][0] > 385


def test_what_cannot_pay_is_not_tried():
    """Once eight rows have shown what width costs, more rows need not."""
    run = Run(4, 0.83, processor).go(400, 8)
    assert set(run.go(20, 32).asked[-20:]) == {0}
    assert run.thrift._costs.seconds(32, 4) > 4 * processor(32, 0)


def test_many_rows_first_then_few():
    run = Run(4, 0.83, processor).go(400, 32)
    assert Counter(run.asked)[0] > 390
    assert Counter(run.go(400, 1).asked[-300:])[4] > 260


def test_times_that_vary_do_not_make_it_slower_than_greedy():
    """A busy machine: times go up by a third, and for a while threefold, whatever is being done."""
    rng = random.Random(5)
    calls = iter(range(10**9))

    def cost(rows: int, block: int) -> float:
        busy = 3.0 if next(calls) // 50 % 4 == 0 else 1.0
        return busy * rng.uniform(1.0, 1.33) * processor(rows, block)

    found, greedy = Run(4, 0.83, cost), Run(4, 0.83, cost, 0)
    for run in (found, greedy):
        run.go(4000, 8)
    assert found.speed > 0.95 * greedy.speed
    assert Counter(found.asked)[0] > 3600


def test_bad_drafts_of_many_rows_are_not_held_against_few():
    """Many rows try drafts where sentences begin, and these may be the hardest."""
    run = Run(4, 0.7, processor).go(300, 8)
    assert Counter(run.asked)[0] > 280
    run._chance = 0.83
    assert Counter(run.go(300, 1).asked[-150:])[4] > 120


def test_long_outputs_before_do_not_make_drafts_seem_cheap():
    """Steps take longer the longer outputs are; in every session they begin anew, and drafts are tried at its start."""
    now = 0

    def cost(rows: int, block: int) -> float:
        return (1 + now / 50) * processor(rows, block)

    run = Run(4, 0.83, cost)
    for _ in range(200):
        run.thrift.begin(8)
        for place in range(60):
            now = place
            run.go(1, 8)
    assert Counter(run.asked)[0] > 0.98 * len(run.asked)


def test_trials_lose_no_more_than_their_share():
    """After it has found out: what other sizes take longer than they bring."""
    run = Run(4, 0.8, processor).go(100, 8)
    before = len(run.asked)
    run.seconds = run.tokens = 0
    run.go(20_000, 8)
    others = [block for block in run.asked[before:] if block]
    assert others
    lost = run.seconds - run.tokens * processor(8, 0)
    assert 0 < lost < 1.5 * SHARE * run.seconds


def test_a_drafter_that_has_not_read_is_tried_more_rarely():
    """What reading costs is a trial's too."""
    runs = []
    for joining in (0.0, 500.0):
        run = Run(4, 0.8, processor).go(100, 8)
        thrift, trials = run.thrift, 0
        for _ in range(400):  # sentences
            for place in range(30):
                choice = thrift.choose(8, joined=False) if place < 4 else thrift.choose(8)
                if place >= 4 and choice.block:
                    choice = type(choice)(0)
                trials += choice.block > 0
                if choice.block:
                    thrift.joined(choice, 8, joining)
                thrift.observe(choice, 8, [min(choice.block, 2)] * 8, processor(8, choice.block))
        runs.append(trials)
    assert runs[0] > 2 * runs[1] > 0


def test_when_drafts_become_good_or_bad_the_block_follows():
    thrift = Thrift(8)

    def run(share: float, iterations: int) -> Counter[int]:
        asked: Counter[int] = Counter()
        for _ in range(iterations):
            choice = thrift.choose(1)
            asked[choice.block] += 1
            thrift.observe(choice, 1, [int(share * choice.block)], 1.0 + 0.2 * choice.block)
        return asked

    assert run(1.0, 200)[8] > 150
    assert run(0.0, 1000)[0] > 600
    assert run(1.0, 6000)[8] > 3000


def test_without_a_clock_nothing_is_drafted():
    thrift = Thrift(8)
    for _ in range(50):
        choice = thrift.choose(1)
        assert choice.block == 0
        thrift.observe(choice, 1, [0], None)


def test_who_has_nothing_to_draft_drafts_nothing():
    assert set(Run(0, 1.0, processor).go(2000).asked) == {0}


def test_the_first_of_a_kind_is_told_from_the_next():
    thrift = Thrift(4)
    assert [thrift.first(rows, block) for rows, block in [(1, 0), (1, 0), (8, 0), (32, 0), (8, 4)]] == [
        True, False, True, False, True,
    ]  # fmt: skip


# --- what iterations cost --------------------------------------------------------------------------------------------


@given(st.integers(1, 5000))
def test_rows_stand_for_about_as_many(rows):
    assert rows <= about(rows) <= max(rows, 1.125 * rows)
    assert rows > 16 or about(rows) == rows


@given(
    fixed=st.floats(0.01, 5),
    width=st.floats(0, 1),
    seen=st.sets(st.tuples(st.sampled_from([1, 2, 4, 8, 32]), st.sampled_from([0, 1, 2, 4])), max_size=8),
    rows=st.sampled_from([1, 2, 4, 8, 32]),
    block=st.sampled_from([0, 1, 2, 4]),
)
def test_what_was_never_tried_is_never_thought_dearer_than_it_is(fixed, width, seen, rows, block):
    costs = Costs()

    def cost(rows: int, block: int) -> float:
        return fixed + width * rows * (1 + block)

    for shape in seen:
        costs.add(*shape, cost(*shape))
    assert costs.seconds(rows, block) <= cost(rows, block) * (1 + 1e-9)


def test_costs_are_known_after_trials_and_old_after_a_while():
    costs = Costs()
    for _ in range(TRIALS):
        assert not costs.known(8, 2)
        costs.add(8, 2, 3.0)
    assert costs.known(8, 2)
    assert not costs.old(8, 2)
    for _ in range(STALE):
        costs.add(8, 0, 1.0)
    assert costs.old(8, 2)
    assert costs.seconds(8, 2) == 3.0
    costs.add(8, 2, 5.0)  # what is new counts alone
    assert costs.seconds(8, 2) == 5.0
    assert not costs.known(8, 2)
