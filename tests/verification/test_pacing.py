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
from longstride.runtime.eager import EagerRunner
from longstride.systems.blockwise.model import Heads
from longstride.verification import lease, pacing
from longstride.verification.paced import Terms
from longstride.verification.pacing import MOST_RECORDINGS, Paces, Pacing
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
def test_a_dozen_recordings_are_enough_and_all_are_kept(kind, rows, cost, clock, monkeypatch):
    """Sentences of all lengths, and at the end of each round a batch that is not full: nothing is recorded twice."""
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
        if rows > 1:
            ours.decode(source_of(1, 14, first), limits)

    for number in range(6):
        decode_all(10 * number)
        assert runner.statistics.graphs <= MOST_RECORDINGS
    recorded = recorder.recorded
    assert recorded <= MOST_RECORDINGS + 6  # some before it was known what pays, some while the last batch tried it too
    for number in range(6, 9):
        decode_all(10 * number)
    assert recorder.recorded == recorded
    assert runner.statistics.graphs <= MOST_RECORDINGS
    assert len(list(runner.tables)) == len(LONGEST) + (rows > 1)


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
    assert runner.statistics.graphs <= MOST_RECORDINGS + 2  # those of a table that no session has given back yet


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

    @property
    def recordings(self) -> int:
        return 1 + len(self.blocks)

    def knows(self, block: int, window: int) -> bool:
        return block in self.blocks

    def forget(self, block: int) -> None:
        self.blocks.discard(block)

    def read_along(self) -> None:
        raise AssertionError("it has read everything")


def iterate(clock: Clock, paced: Pacing, table: Fake, cost: Callable[[int], float], times: int) -> list[int]:
    asked = []
    for _ in range(times):
        block = paced.choose(1)
        paced.begin(block, 1)
        table.blocks.add(block)
        clock.now += cost(block)
        paced.end([min(block, 3)])
        asked.append(block)
    return asked


def test_one_table_tries_and_the_others_follow(clock):
    paces, tables = Paces(10), [Fake() for _ in range(6)]
    tried = iterate(clock, paces.join(tables[0], 1, WAITING), tables[0], FAIR, 16)
    assert set(tried) == {0, 4, 10}
    for table in tables[1:5]:
        assert set(iterate(clock, paces.join(table, 1, WAITING), table, FAIR, 20)) == {4}
    assert sum(table.recordings for table in tables[:5]) == MOST_RECORDINGS
    # One more, and what was only tried goes.
    iterate(clock, paces.join(tables[5], 1, WAITING), tables[5], FAIR, 1)
    assert sum(table.recordings for table in tables) == MOST_RECORDINGS
    assert tables[0].blocks == {4}
    assert set(iterate(clock, paces.join(tables[0], 1, WAITING), tables[0], FAIR, 2000)) == {4}


def test_where_the_first_table_is_rarely_used_another_one_tries(clock):
    """A long sentence came first, and then short ones alone."""
    paces, first, second = Paces(10), Fake(), Fake()
    iterate(clock, paces.join(first, 1, WAITING), first, FAIR, 6)
    assert first.blocks == {0, 10}
    asked = [set(iterate(clock, paces.join(second, 1, WAITING), second, FAIR, 3)) for _ in range(9)]
    assert asked[:4] == [{10}] * 4
    assert asked[-1] == {4}
    assert first.blocks == {10}


def test_another_number_of_rows_follows_at_first(clock):
    """A test set's last batch; if more come, they find out by themselves."""
    paces, first, other = Paces(10), Fake(), Fake()
    iterate(clock, paces.join(first, 32, WAITING), first, lambda block: 1.0 + block, 200)
    best = paces.join(first, 32, WAITING)._pace.block
    asked = [set(iterate(clock, paces.join(other, 8, WAITING), other, FAIR, 20)) for _ in range(3)]
    assert asked == [{best}, {best}, {0, 4, 10}]


def test_what_a_drafter_did_not_see_is_not_its_fault(clock):
    """Heads that were left out once have nothing to propose the next time."""
    told: list[int] = []
    for learns in (False, True):
        paced, table = Paces(10).join(Fake(), 1, Terms(True, learns)), Fake()
        paced._pace.observe = lambda block, stood, seconds: told.append(block)  # type: ignore[method-assign]
        for block in (10, 0, 10, 10):
            paced.begin(block, 1)
            table.blocks.add(block)
            paced.end([0])
    assert told == [10, 0, 10, 10, 10, 0, 10]


def test_a_drafter_that_has_missed_too_much_is_not_asked(clock):
    table = Fake()
    paced = Paces(10).join(table, 1, Terms(True, window=13))
    assert paced.choose(13) == 10
    assert paced.choose(14) == 0
    iterate(clock, paced, table, CHEAP, 4)  # the first of them records
    assert paced._pace.next() == 0
    assert paced.choose(12) == 0
    assert paced.choose(13) == 10  # one more without a draft would be too many
