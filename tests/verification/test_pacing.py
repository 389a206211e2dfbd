"""Blocks that follow the clock where steps are recorded: few recordings, all kept, and times of steps alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride.contract import Limits, Program, Source
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.runtime.cuda_graph_recorder import Recorded
from longstride.runtime.cuda_graph_tables import MOST_RECORDINGS
from longstride.runtime.eager import EagerRunner
from longstride.systems.blockwise.model import Heads
from longstride.verification import lease, pacing
from longstride.verification.paced import Terms
from longstride.verification.pacing import Paces, Pacing
from longstride.verification.session import VerificationSession
from tests.models import random_source
from tests.runtime.recording import TapeRecorder
from tests.runtime.test_cuda_graph import EAGER, KINDS, decoder_of, same

DRAFTING = KINDS[1:]
RECORDING, ENCODING = 1e6, 1e3
"""Seconds: whoever took either for what a step costs would never draft such a block again."""
DEAR: Callable[[int], float] = lambda block: 1.0 if block == 0 else 40.0 + block  # noqa: E731
FAIR: Callable[[int], float] = lambda block: 1.0 + 0.1 * block  # noqa: E731
CHEAP: Callable[[int], float] = lambda block: 10.0 + 0.01 * block  # noqa: E731


class Clock:
    """Goes on when something is done."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Costly(TapeRecorder):
    """Recording takes long; an iteration takes what its block costs, with what was encoded before it."""

    def __init__(self, clock: Clock, cost: Callable[[int], float]) -> None:
        super().__init__()
        self._clock, self._cost = clock, cost
        self._waiting = 0.0
        self.blocks: list[int] = []

    def record(self, function: Any, state: Sequence[Tensor]) -> Recorded:
        self._clock.now += RECORDING
        found = super().record(function, list(state))
        block = function.args[0] if function.func.__name__ == "_iterate" else None

        def replay() -> None:
            found.replay()
            if block is None:  # a device works on while the host goes ahead
                self._waiting += ENCODING
                return
            self.blocks.append(block)
            self._clock.now += self._cost(block) + self._waiting
            self._waiting = 0.0

        return Recorded(replay, found.result, found.nbytes)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(pacing, "clock", found)
    return found


def runner_of(clock: Clock, cost: Callable[[int], float]) -> tuple[CudaGraphRunner, Costly]:
    recorder = Costly(clock, cost)
    return CudaGraphRunner("cpu", "fp64", recorder=recorder), recorder


LONGEST = (7, 14, 30, 60)
"""Sources for four sizes of tables, where the shortest are made for eight tokens."""


def source_of(rows: int, longest: int, seed: int) -> Source:
    """Sentences whose table is for `longest` tokens whatever they have."""
    source = random_source(rows, longest, seed=seed)
    return Source.of([source.ids[row, : source.lengths[row]].tolist() for row in range(rows)], longest)


@pytest.mark.parametrize(
    ("kind", "rows", "cost"),
    [("blockwise", 1, DEAR), ("blockwise", 4, CHEAP), ("draft-verify", 1, CHEAP), ("draft-verify", 4, DEAR)],
)
def test_a_dozen_recordings_are_enough_and_none_is_made_twice(kind, rows, cost, clock, monkeypatch):
    """Sentences of all lengths: whatever is chosen later, nothing is recorded any more after the first round."""
    monkeypatch.setattr(lease, "SHORTEST_SOURCE", 8)
    runner, recorder = runner_of(clock, cost)
    ours, theirs = decoder_of(kind, runner, 2, adaptive=True), decoder_of(kind, EAGER, 2)
    limits = Limits(max_length=10)

    def decode_all(first: int) -> None:
        for place, longest in enumerate(LONGEST):
            source = source_of(rows, longest, first + place)
            found = ours.decode(source, limits)
            if first < 20:
                same(found, theirs.decode(source, limits), traces=False)

    decode_all(0)
    assert recorder.recorded == 3 * len(LONGEST) == MOST_RECORDINGS  # to enter, with a draft, without one
    for number in range(1, 8):
        decode_all(10 * number)
    assert recorder.recorded == runner.statistics.graphs == MOST_RECORDINGS
    assert len(list(runner.tables)) == len(LONGEST)


def test_a_last_batch_that_is_not_full_records_what_it_needs_alone(clock):
    runner, recorder = runner_of(clock, CHEAP)
    decoder = decoder_of("blockwise", runner, 2, adaptive=True)
    for seed in range(3):
        decoder.decode(random_source(4, 14, seed=seed), Limits(max_length=10))
    before = recorder.recorded
    decoder.decode(random_source(1, 14, seed=9), Limits(max_length=10))
    assert recorder.recorded == before + 2


@pytest.mark.parametrize("kind", ["blockwise", "draft-verify", "copy-verify"])
def test_nothing_is_drafted_where_drafts_do_not_pay(kind, clock):
    """Greedy steps alone, but for finding out; and that is remembered from one sentence to the next."""
    runner, recorder = runner_of(clock, DEAR)
    decoder = decoder_of(kind, runner, 3, adaptive=True)
    for seed in range(4):
        decoder.decode(random_source(1, 14, seed=seed), Limits(max_length=12))
    recorder.blocks.clear()
    for seed in range(4, 16):
        decoder.decode(random_source(1, 14, seed=seed), Limits(max_length=12))
    assert recorder.blocks.count(0) > 0.9 * len(recorder.blocks)


def test_neither_recording_nor_encoding_is_taken_for_a_step(clock, monkeypatch):
    observed: list[tuple[int, float | None]] = []
    end = Pacing.end

    def noted(self: Pacing, stood: Sequence[int]) -> None:
        observed.append((self._block, None if self._begun is None else pacing.clock() - self._begun))
        end(self, stood)

    monkeypatch.setattr(Pacing, "end", noted)
    runner, recorder = runner_of(clock, CHEAP)
    decoder = decoder_of("draft-verify", runner, 4, adaptive=True)
    for seed in range(12):
        decoder.decode(random_source(1, 14, seed=seed), Limits(max_length=12))
    times = [(block, seconds) for block, seconds in observed if seconds is not None]
    assert {block for block, _ in times} >= {0, recorder.blocks[0]}
    for block, seconds in times:
        assert seconds == pytest.approx(CHEAP(block))
    assert len(times) < len(observed)  # those that recorded, and first steps of sentences


@settings(max_examples=5, deadline=None)
@given(
    kind=st.sampled_from(DRAFTING),
    seed=st.integers(0, 10_000),
    batches=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5), st.sampled_from([6, 30])), min_size=2),
    costs=st.lists(st.floats(0.1, 9.0), min_size=5, max_size=5),
)
def test_whatever_the_clock_says_the_output_stays(kind, seed, batches, costs):
    """Blocks come and go within a sentence, rows come while others are half done, tables forget what they recorded."""
    clock = Clock()
    calls = iter(range(10**9))
    recorder = Costly(clock, lambda block: costs[(block + next(calls)) % 5])
    runner = CudaGraphRunner("cpu", "fp64", recorder=recorder)
    ours, theirs = decoder_of(kind, runner, seed, adaptive=True), decoder_of(kind, EAGER, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pacing, "clock", clock)
        for number, (rows, capacity, longest) in enumerate(batches[:4]):
            source = random_source(rows, longest, seed=seed + number)
            found, expected = (one.decode(source, Limits(max_length=16), capacity) for one in (ours, theirs))
            same(found, expected, traces=False)
    assert runner.statistics.graphs <= MOST_RECORDINGS + 3  # those of a table that no session has given back yet


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("rows", [1, 2])
def test_without_a_draft_nothing_is_predicted_either(recorded, rows, clock, monkeypatch):
    """What heads would say next is left out, and asked for again in the first iteration that drafts."""
    runner = runner_of(clock, CHEAP)[0] if recorded else EagerRunner(precision="fp64")
    called: list[str] = []
    call = runner.call

    def noted(program: Program, *arguments: Any) -> Any:
        called.append(program.name)
        return call(program, *arguments)

    monkeypatch.setattr(runner, "call", noted)
    predicted: list[int] = []
    forward = Heads.ahead
    monkeypatch.setattr(Heads, "ahead", lambda *given: predicted.append(1) or forward(*given))
    session = start(decoder_of("blockwise", runner, 5, adaptive=True), rows)
    session.admit(random_source(rows, 6, seed=5))
    drafted = []
    for block in (3, 3, 0, 3, 3):
        called.clear(), predicted.clear()
        found = session.table.iterate(block, 4)
        assert bool(predicted) == bool(block) or (recorded and not called)  # a recording runs no line of it
        drafted.append(found.drafted.tolist())
    assert drafted == [[0] * rows, [3] * rows, [0] * rows, [0] * rows, [3] * rows]


def start(decoder: Any, rows: int = 1) -> VerificationSession:
    session = decoder.start(rows, Limits(), 6)
    assert isinstance(session, VerificationSession)
    assert session._pacing is not None
    return session


WAITING = Terms(waits=True)


class Fake:
    """A table that records all it is asked for."""

    recorded = True
    unread = False

    def __init__(self) -> None:
        self.blocks: set[int] = set()

    def knows(self, block: int, window: int) -> bool:
        return block in self.blocks

    def prepare(self, block: int, window: int) -> None:
        self.blocks.add(block)

    def read_along(self) -> None:
        raise AssertionError("it has read everything")


def iterate(clock: Clock, paced: Pacing, table: Fake, cost: Callable[[int], float], times: int) -> list[int]:
    """A batch of so many iterations."""
    asked = []
    paced.encode(True)
    for _ in range(times):
        block = paced.choose(1)
        paced.begin(block, 1)
        table.blocks.add(block)
        clock.now += cost(block)
        if not paced.settled:
            paced.end([min(block, 3)])
        asked.append(block)
    return asked


def test_all_tables_have_both_ways_from_the_start(clock):
    paces, tables = Paces(10), [Fake() for _ in range(3)]
    for table in tables:
        assert set(iterate(clock, paces.join(table, 1, WAITING), table, FAIR, 1)) == {10}
        assert table.blocks == {0, 10}
    assert set(iterate(clock, paces.join(tables[0], 1, WAITING), tables[0], FAIR, 40)) == {0, 10}
    assert set(iterate(clock, paces.join(tables[1], 1, WAITING), tables[1], FAIR, 40)) == {10}


def test_another_number_of_rows_follows_at_first(clock):
    """A test set's last batch; if more come, they find out by themselves."""
    paces, first, other = Paces(10), Fake(), Fake()
    iterate(clock, paces.join(first, 32, WAITING), first, lambda block: 1.0 + block, 200)
    asked = [set(iterate(clock, paces.join(other, 8, WAITING), other, FAIR, 20)) for _ in range(3)]
    assert asked == [{0}, {0}, {0, 10}]
    assert paces.join(other, 8, WAITING)._pace.block == 10


def test_what_a_drafter_did_not_see_is_not_its_fault(clock):
    """Heads that were left out once have nothing to propose the next time."""
    told: list[int] = []
    for learns in (False, True):
        paced, table = Paces(10).join(Fake(), 1, Terms(True, learns)), Fake()
        paced._pace.observe = lambda block, stood, seconds: told.append(block)  # type: ignore[method-assign]
        for block in (10, 10, 0, 10, 10):  # before the first they have seen nothing either
            paced.begin(block, 1)
            table.blocks.add(block)
            paced.end([0])
    assert told == [10, 10, 0, 10, 10, 10, 0, 10]


def test_a_drafter_that_has_missed_too_much_is_not_asked(clock):
    table = Fake()
    paced = Paces(10).join(table, 1, Terms(True, window=13))
    assert paced.choose(13) == 10
    assert paced.choose(14) == 0
    iterate(clock, paced, table, CHEAP, 4)  # the first of them is not timed
    assert paced._pace.next(5) == (0, True)
    assert paced.choose(12) == 0
    assert paced.choose(13) == 10  # one more without a draft would be too many
