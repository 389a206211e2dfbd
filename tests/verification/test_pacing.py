"""Drafts that follow the clock where steps are recorded: the better of two ways, each as fast as it is by itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride.contract import Decoder, Limits, Program, Source
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.runtime.cuda_graph_recorder import Recorded
from longstride.runtime.cuda_graph_tables import MOST_RECORDINGS
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.blockwise.model import Heads
from longstride.verification import lease, pacing
from longstride.verification.pacing import LATEST, MOST_SHAPES, SHARE, SOONEST, Pace, Paces, Watch
from longstride.verification.session import VerificationSession
from tests.models import random_source
from tests.runtime.recording import TapeRecorder
from tests.runtime.test_cuda_graph import EAGER, KINDS, decoder_of, same

DRAFTING = KINDS[1:]
RECORDING, ENCODING, READING = 1e6, 0.3, 0.1
"""Seconds: to record anything, and to encode a portion of sentences, for the verifier and for a drafter."""
DEAR: Callable[[int], float] = lambda block: 1.0 if block == 0 else 40.0 + block  # noqa: E731
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
        table = function.func.__self__
        block = function.args[0] if function.func.__name__ == "_iterate" else None

        def replay() -> None:
            found.replay()
            if block is None:  # a device works on while the host goes ahead
                self._waiting += ENCODING + (READING if table.drafter.calls else 0.0)
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


# --- which way ------------------------------------------------------------------------------------------------------

BATCHES = 8


class Device:
    """Takes its time for batches, by their longest outputs: some before the first iteration, and for each."""

    def __init__(self, ratio: float, before: float = 2.0, noise: float = 0.0, seed: int = 0) -> None:
        self._ratio, self._before, self._noise = ratio, before, noise
        self._rng = random.Random(seed)

    def seconds(self, drafts: bool, tokens: int) -> float:
        """In all; with drafts, as many times greedy search's as was said, on the mean."""
        greedy = self._before + tokens
        return greedy * self._ratio * self._rng.uniform(1 - self._noise, 1 + self._noise) if drafts else greedy

    def run(self, pace: Pace, lengths: Sequence[int]) -> tuple[float, float]:
        """Batch by batch as is chosen: what they took, and what the better way takes."""
        taken = best = 0.0
        for tokens in lengths:
            drafts = pace.choose()
            seconds = self.seconds(drafts, tokens)
            pace.observe(drafts, tokens, self._before + 1 if not drafts else seconds / 2, seconds)
            taken, best = taken + seconds, best + (self._before + tokens) * min(1.0, self._ratio)
        return taken, best


LENGTHS = st.lists(st.integers(5, 90), min_size=2 * BATCHES, max_size=2 * BATCHES)


@given(
    ratio=st.one_of(st.sampled_from([0.5, 1 / 1.07, 1.07, 2.0]), st.floats(0.2, 4.0)),
    before=st.floats(0, 20),
    rows=st.sampled_from([1, 8, 64]),
    lengths=LENGTHS,
)
def test_after_a_warm_up_it_takes_what_the_better_way_takes(ratio, before, rows, lengths):
    """Batches of all lengths, as they come: 2 per cent are left for finding out."""
    device, pace = Device(ratio, before), Pace(rows)
    device.run(pace, lengths[:BATCHES])
    taken, best = device.run(pace, [40] * BATCHES)
    assert taken <= 1.02 * best
    taken, best = device.run(pace, lengths)
    assert pace.choose() == (ratio < 1) or taken <= 1.02 * best


@pytest.mark.parametrize("ratio", [0.4, 0.7, 0.9, 1.1, 1.5, 4.0])
@pytest.mark.parametrize("rows", [1, 64])
def test_in_the_long_run_noise_costs_little(ratio, rows):
    """Drafts bring now more and now less; most of what is lost is lost where both ways are nearly alike."""
    for seed in range(5):
        rng, device = random.Random(seed), Device(ratio, noise=0.5 if rows == 1 else 0.15, seed=seed)
        taken, best = device.run(Pace(rows), [rng.randint(5, 60) for _ in range(1000)])
        assert taken < 1.03 * best


@pytest.mark.parametrize("ratio", [0.5, 3.0])
def test_what_seems_worse_is_tried_as_rarely_as_it_is_bad(ratio):
    device, pace = Device(ratio), Pace()
    device.run(pace, [40] * BATCHES)
    asked = []
    for _ in range(2 * LATEST):
        asked.append(pace.choose())
        pace.observe(asked[-1], 40, 3.0, device.seconds(asked[-1], 40))
    tried = asked.count(ratio > 1)
    lost = max(ratio, 1 / ratio) - 1
    assert 1 <= tried <= 2 * LATEST / min(LATEST, lost / SHARE) + 1


@pytest.mark.parametrize("rows", [1, 8, 64])
def test_when_drafts_become_good_or_bad_it_follows(rows):
    pace = Pace(rows)
    for ratio in (0.5, 1.5, 0.5, 1.5):
        Device(ratio).run(pace, [40] * (2 * LATEST))
        assert (pace.ratio < 1) == (ratio < 1)


def test_where_both_are_alike_trials_are_no_closer_than_a_few_batches():
    device, pace, asked = Device(1.0), Pace(64), []
    device.run(pace, [40] * BATCHES)
    for _ in range(200):
        asked.append(pace.choose())
        pace.observe(asked[-1], 40, 3.0, device.seconds(asked[-1], 40) * (1.001 if asked[-1] else 1.0))
    assert asked.count(True) <= 200 / SOONEST


def test_one_batch_that_waited_for_something_else_is_forgiven():
    """With drafts or without, in the first ones or later."""
    for late in range(2 * BATCHES):
        for ratio in (0.6, 1.5):
            device, pace = Device(ratio), Pace(64)
            for number in range(3 * BATCHES):
                drafts = pace.choose()
                pace.observe(drafts, 40, 3.0, device.seconds(drafts, 40) * (20 if number == late else 1))
            assert (pace.ratio < 1) == (ratio < 1), (late, ratio)


def test_a_lone_token_says_nothing_of_further_ones():
    pace = Pace()
    for _ in range(6):
        drafts = pace.choose()
        pace.observe(drafts, 1, 2.0, 2.0)
    assert 0 < pace.ratio < float("inf")


def test_greedy_search_would_take_as_long_as_the_longest_or_as_all_of_them(clock):
    told: list[tuple[bool, float, float, float]] = []
    pace = Pace(4)
    pace.observe = lambda *given: told.append(given)  # type: ignore[method-assign]
    for lengths in ([[3, 9], [12, 2]], [[30], [10, 10, 10, 10, 50]]):
        watch = Watch(pace, True, 4)
        watch.begin()
        clock.now += 2.0
        watch.look()
        clock.now += 5.0
        for place, some in enumerate(lengths):
            watch.finish(some, place == 1)
    assert told == [(True, 12, 2.0, 7.0), (True, 50, 2.0, 7.0)]
    watch.begin()
    watch.finish([20] * 12, True)
    assert told[-1][1] == 60  # twelve sentences in four places


def test_numbers_of_rows_are_few():
    paces = Paces()
    assert paces.of(3) is paces.of(3)
    for rows in range(3 * MOST_SHAPES):
        paces.of(rows)
    assert len(paces._known) <= MOST_SHAPES


# --- decoders that choose -------------------------------------------------------------------------------------------

LIMITS = Limits(max_length=16)


def total(clock: Clock, decoder: Decoder, sources: Sequence[Source]) -> float:
    begun = clock.now
    for source in sources:
        decoder.decode(source, LIMITS)
    return clock.now - begun


@pytest.mark.parametrize(("kind", "rows"), [("draft-verify", 64), ("blockwise", 8), ("copy-verify", 8)])
@pytest.mark.parametrize("ratio", [0.5, 1 / 1.07, 1.07, 2.0])
def test_a_decoder_takes_what_the_better_of_two_takes(kind, rows, ratio, clock):
    """Eight batches after eight others: recordings, a drafter's reading and the slowest sentence are counted."""
    cost: dict[int, float] = {}
    runner, recorder = runner_of(clock, lambda block: cost.setdefault(block, 1.0))
    ours, fixed = decoder_of(kind, runner, 3, adaptive=True), decoder_of(kind, runner, 3)
    greedy = Greedy(fixed._model, runner)
    sources = [source_of(rows, 14, 1)] * BATCHES
    total(clock, greedy, sources[:1]), total(clock, fixed, sources[:1])
    recorder.blocks.clear()
    always = total(clock, fixed, sources)
    never = total(clock, greedy, sources)
    block = max(recorder.blocks)
    cost[block] += (ratio * never - always) / recorder.blocks.count(block)
    total(clock, ours, sources)
    recorded = recorder.recorded
    found = total(clock, ours, sources)
    assert total(clock, fixed, sources) == pytest.approx(ratio * never)
    assert found <= 1.02 * min(ratio, 1.0) * never
    assert recorder.recorded == recorded


def test_without_a_draft_it_is_greedy_search_itself(clock):
    """The very table: no operator and no byte is another."""
    for kind in DRAFTING:
        runner, _ = runner_of(clock, DEAR)
        ours = decoder_of(kind, runner, 3, adaptive=True)
        theirs = Greedy(ours._model, runner)
        theirs.decode(source_of(4, 14, 1), LIMITS)
        (table,) = runner.tables
        session = ours.start(4, LIMITS, 14)
        assert isinstance(session, VerificationSession)
        assert session.table is table, kind


@pytest.mark.parametrize("kind", DRAFTING)
def test_with_drafts_it_is_what_always_drafts(kind, clock):
    runner, _ = runner_of(clock, CHEAP)
    ours, fixed = decoder_of(kind, runner, 3, adaptive=True), decoder_of(kind, runner, 3)
    ours.decode(source_of(4, 14, 1), LIMITS)
    drafting = ours.start(4, LIMITS, 14)
    assert isinstance(drafting, VerificationSession)
    assert drafting._pacing is None
    assert drafting.policy == fixed.start(4, LIMITS, 14).policy
    assert drafting.table.drafter.block > 0


LONGEST = (7, 14, 30, 60)
"""Sources for four sizes of tables, where the shortest are made for eight tokens."""


def source_of(rows: int, longest: int, seed: int) -> Source:
    """Sentences whose table is for `longest` tokens whatever they have."""
    source = random_source(rows, longest, seed=seed)
    return Source.of([source.ids[row, : source.lengths[row]].tolist() for row in range(rows)], longest)


@pytest.mark.parametrize(
    ("kind", "cost"), [("blockwise", DEAR), ("blockwise", CHEAP), ("draft-verify", CHEAP), ("draft-verify", DEAR)]
)
def test_what_was_met_once_is_recorded_both_ways(kind, cost, clock, monkeypatch):
    """Sentences of all lengths, one and several at a time: nothing is recorded any more after the first round."""
    monkeypatch.setattr(lease, "SHORTEST_SOURCE", 8)
    runner, recorder = runner_of(clock, cost)
    ours, theirs = decoder_of(kind, runner, 2, adaptive=True), decoder_of(kind, EAGER, 2)
    for rows in (1, 4):
        before = recorder.recorded
        for number in range(6):
            for place, longest in enumerate(LONGEST):
                source = source_of(rows, longest, 10 * number + place)
                found = ours.decode(source, LIMITS)
                if number < 2:
                    same(found, theirs.decode(source, LIMITS), traces=False)
            assert recorder.recorded - before == 4 * len(LONGEST)  # to enter and to iterate, either way
    assert 2 * len(LONGEST) <= MOST_RECORDINGS


@pytest.mark.parametrize("kind", ["blockwise", "draft-verify", "copy-verify"])
def test_nothing_is_drafted_where_drafts_do_not_pay(kind, clock):
    """And that is remembered from one sentence to the next."""
    runner, recorder = runner_of(clock, DEAR)
    decoder = decoder_of(kind, runner, 3, adaptive=True)
    for seed in range(4):
        decoder.decode(random_source(1, 14, seed=seed), LIMITS)
    recorder.blocks.clear()
    for seed in range(4, 16):
        decoder.decode(random_source(1, 14, seed=seed), LIMITS)
    assert set(recorder.blocks) == {0}


def test_recording_is_never_taken_for_a_batch(clock, monkeypatch):
    observed: list[float] = []
    observe = Pace.observe

    def noted(self: Pace, drafts: bool, tokens: float, first: float, seconds: float) -> None:
        observed.append(seconds)
        observe(self, drafts, tokens, first, seconds)

    monkeypatch.setattr(Pace, "observe", noted)
    runner, _ = runner_of(clock, CHEAP)
    decoder = decoder_of("draft-verify", runner, 4, adaptive=True)
    for seed in range(12):
        decoder.decode(random_source(1, 6 + 10 * (seed % 3), seed=seed), LIMITS)
    assert len(observed) == 12
    assert max(observed) < RECORDING


@settings(max_examples=5, deadline=None)
@given(
    kind=st.sampled_from(DRAFTING),
    seed=st.integers(0, 10_000),
    batches=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5), st.sampled_from([6, 30])), min_size=2),
    costs=st.lists(st.floats(0.1, 9.0), min_size=5, max_size=5),
)
def test_whatever_the_clock_says_the_output_stays(kind, seed, batches, costs):
    """Ways come and go from batch to batch, rows come while others are half done."""
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
    assert runner.statistics.graphs <= 2 * MOST_RECORDINGS


# --- where any block may be had at any time ---------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2])
def test_without_a_draft_nothing_is_predicted_either(rows, monkeypatch):
    """What heads would say next is left out, and asked for again in the first iteration that drafts."""
    runner = EagerRunner(precision="fp64")
    called: list[str] = []
    call = runner.call

    def noted(program: Program, *arguments: Any) -> Any:
        called.append(program.name)
        return call(program, *arguments)

    monkeypatch.setattr(runner, "call", noted)
    predicted: list[int] = []
    forward = Heads.ahead
    monkeypatch.setattr(Heads, "ahead", lambda *given: predicted.append(1) or forward(*given))
    session = decoder_of("blockwise", runner, 5, adaptive=True).start(rows, Limits(), 6)
    assert isinstance(session, VerificationSession)
    session.admit(random_source(rows, 6, seed=5))
    drafted = []
    for block in (3, 3, 0, 3, 3):
        called.clear(), predicted.clear()
        found = session.table.iterate(block, 4)
        assert bool(predicted) == bool(block)
        drafted.append(found.drafted.tolist())
    assert drafted == [[0] * rows, [3] * rows, [0] * rows, [0] * rows, [3] * rows]
