"""Sentences that are encoded beside iterations: rows take them when they are whole, however long that takes and
whatever becomes of the others."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride.contract import Decoder, Limits, Session, Source
from longstride.runtime.cuda_graph import CudaGraphRunner
from longstride.serving.errors import ServingError
from longstride.serving.lanes import Lanes
from longstride.serving.scheduler import Scheduler
from longstride.verification import queue
from longstride.verification.queue import Ahead, RefilledState
from longstride.verification.refilled_session import RefilledSession
from tests.models import random_source
from tests.runtime.recording import TapeRecorder
from tests.runtime.test_cuda_graph import EAGER, KINDS, decoder_of, same
from tests.serving.test_scheduler import HANG, Asked

LIMITS = Limits(max_length=12, max_ratio=1.0, max_extra=0)


class SlowSide(CudaGraphRunner):
    """A runner whose recordings beside others get on by as many operations as a chance says, before each of the others;
    no further, unless they are waited for."""

    def __init__(self, seed: int = 0, most: int = 400) -> None:
        super().__init__("cpu", "fp64", tell=self._fail, recorder=TapeRecorder())
        self.under_way: list[tuple[Any, Tensor, list[Callable[[], None]]]] = []
        """staging, what it brought, what is left to do"""
        self._chance, self._most, self._within = random.Random(seed), most, False

    @staticmethod
    def _fail(message: str) -> None:
        raise AssertionError(message)

    @contextmanager
    def beside(self) -> Iterator[None]:
        assert not self._within
        self._within = True
        try:
            yield
        finally:
            self._within = False

    def join(self) -> None:
        self._get_on(10**9)

    def record(self, name: str, function: Callable[[], Any], state: Sequence[Tensor]) -> Callable[[], Any]:
        self.join()
        found, beside = super().record(name, function, state), self._within

        def again() -> Any:
            assert self._within == beside
            if beside:
                staging = function.args[0]  # type: ignore[attr-defined]  # a partial
                steps = list(found._replay.steps)  # type: ignore[attr-defined]
                self.under_way.append((staging, staging._all.clone(), steps))
                return None
            self._get_on(self._chance.randint(0, self._most))
            return found()

        return again

    @torch.inference_mode()
    def _get_on(self, steps: int) -> None:
        while self.under_way and steps:
            staging, brought, left = self.under_way[0]
            kept = staging._all.clone()  # on a processor the next ones are put there at once
            staging._all.copy_(brought)
            while left and steps:
                left.pop(0)()
                steps -= 1
            staging._all.copy_(kept)
            if not left:
                self.under_way.pop(0)

    @property
    def encoded(self) -> set[int]:
        """Tickets of those that are not yet whole."""
        return {
            ticket for staging, brought, _ in self.under_way for ticket in brought[:, staging._longest + 2].tolist()
        }


@settings(max_examples=10)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10_000),
    rows=st.integers(2, 14),
    capacity=st.integers(1, 5),
    group=st.integers(1, 5),
    most=st.sampled_from((0, 20, 200, 2000)),
)
def test_outputs_and_traces_hang_on_no_encoder(kind, seed, rows, capacity, group, most):
    ours, theirs = (decoder_of(kind, one, seed) for one in (SlowSide(seed, most), EAGER))
    source = random_source(rows, 9, seed=seed)
    with patch.multiple(queue, LEAST=group, MOST=group):
        for _ in range(2):  # the second finds a table that was used
            same(ours.decode(source, LIMITS, capacity, trace=True), theirs.decode(source, LIMITS, trace=True))


@settings(max_examples=10)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10_000),
    capacity=st.integers(2, 4),
    most=st.sampled_from((0, 20, 200, 2000)),
)
def test_who_arrives_joins_when_encoded_and_who_leaves_disturbs_nobody(kind, seed, capacity, most):
    runner, chance = SlowSide(seed, most), random.Random(seed)
    decoder, source = decoder_of(kind, runner, seed), random_source(24, 9, seed=seed)
    expected = decoder_of(kind, EAGER, seed).decode(source, LIMITS).tokens
    for _ in range(2):
        session = decoder.start_refilled(capacity, LIMITS, source.longest, arriving=True)
        tickets: list[int] = []
        gone: set[int] = set()
        found: dict[int, list[int]] = {}
        while len(found) + len(gone) < source.rows:
            if count := min(session.free, source.rows - len(tickets), chance.randint(0, 3)):
                tickets += session.admit(source.slice(len(tickets), len(tickets) + count))
            for ticket in tickets:
                if ticket not in found and ticket not in gone and chance.random() < 0.03:
                    session.cancel(ticket)
                    gone.add(ticket)
            if len(found) + len(gone) == len(tickets):
                continue
            step = session.advance()
            assert not (runner.encoded | gone) & set(step.ticket[step.active].tolist())
            found |= {one.ticket: one.hypotheses[0].tokens for one in session.take_finished()}
        session.close()
        assert found == {ticket: expected[ticket] for ticket in found}
        assert not gone & set(found)


def test_nobody_waits_for_an_encoder_but_an_idle_table() -> None:
    runner = SlowSide(most=0)
    decoder, source = decoder_of("greedy", runner, 3), random_source(6, 9, seed=3)
    session = decoder.start_refilled(4, LIMITS, source.longest, arriving=True)
    taken: list[Any] = []

    def advance() -> set[int]:
        step = session.advance()
        taken.extend(session.take_finished())
        return set(step.ticket[step.active].tolist())

    first = session.admit(source.slice(0, 1))
    assert advance() == set(first)
    advance()  # the first report is read
    second = session.admit(source.slice(1, 2))
    assert runner.encoded == set(second)
    while not taken:
        assert advance() <= set(first)
    assert advance() == set(second)


def test_a_table_whose_sentences_were_all_given_up_serves_the_next_session() -> None:
    runner = SlowSide(most=0)
    decoder, source = decoder_of("draft-verify", runner, 3), random_source(6, 9, seed=3)
    expected = decoder_of("draft-verify", EAGER, 3).decode(source, LIMITS).tokens
    for _ in range(3):
        session = decoder.start_refilled(2, LIMITS, source.longest, arriving=True)
        for ticket in session.admit(source):
            session.cancel(ticket)
        session.close()
    assert len(list(runner.tables)) == 1
    session = decoder.start_refilled(2, LIMITS, source.longest, arriving=True)
    assert isinstance(session, RefilledSession)
    assert finished(session, source) == expected
    assert runner.statistics.recorded == 2


def finished(session: Session, source: Source) -> list[list[int]]:
    tickets, found = session.admit(source), {}
    while len(found) < source.rows:
        session.advance()
        found |= {one.ticket: one.hypotheses[0].tokens for one in session.take_finished()}
    session.close()
    return [found[ticket] for ticket in tickets]


# --- the server's scheduler -------------------------------------------------------------------------------------------


def ids_of(source: Source) -> list[list[int]]:
    return [ids[:length] for ids, length in zip(source.ids.tolist(), source.lengths.tolist(), strict=True)]


def end(scheduler: Scheduler) -> None:
    scheduler.drain()
    assert scheduler.join(HANG)
    assert (scheduler.live, scheduler.waiting, scheduler._lanes.open) == (0, 0, [])


@pytest.mark.parametrize(("kind", "most"), [("draft-verify", 0), ("draft-verify", 300), ("greedy", 60)])
def test_scheduled_outputs_are_those_of_each_alone(kind: str, most: int) -> None:
    runner, chance = SlowSide(most, most), random.Random(most)
    decoder, source = decoder_of(kind, runner, 5), random_source(60, 9, seed=5)
    alone = decoder_of(kind, EAGER, 5).decode(source, LIMITS).tokens
    scheduler = Scheduler(decoder, LIMITS, 9, rows=8, grouped=True)
    asked = [Asked(ids) for ids in ids_of(source)]
    gone = set()
    for first in range(0, len(asked), 6):
        some = asked[first : first + 6]
        for one in some:
            if chance.random() < 0.7:
                one.sentence.watch = None  # looking at iterations waits for the device
        scheduler.submit([one.sentence for one in some])
        left = [one for one in some if chance.random() < 0.2]
        scheduler.cancel([one.sentence for one in left])
        gone |= set(left)
        if chance.random() < 0.4:
            some[0].wait()
    for one, expected in zip(asked, alone, strict=True):
        told = one.wait()
        if isinstance(told, ServingError):
            assert one in gone
        else:
            assert told[0].tokens == expected
    end(scheduler)


def test_where_an_encoder_fails_its_table_is_left_and_others_are_served(caplog: pytest.LogCaptureFixture) -> None:
    runner = SlowSide(most=30)
    decoder, source = decoder_of("draft-verify", runner, 5), random_source(8, 9, seed=5)
    alone = decoder_of("draft-verify", EAGER, 5).decode(source, LIMITS).tokens
    scheduler, enter = Scheduler(decoder, LIMITS, 9, rows=4, grouped=True), RefilledState.admit
    failing = iter((False, True))

    def admit(self: RefilledState, *arguments: Any) -> None:
        if next(failing, False):
            raise RuntimeError("out of memory")
        enter(self, *arguments)

    with patch.object(RefilledState, "admit", admit):
        first = [Asked(ids) for ids in ids_of(source)]
        scheduler.submit([one.sentence for one in first])
        told = [one.wait() for one in first]
        later = [Asked(ids) for ids in ids_of(source)]
        scheduler.submit([one.sentence for one in later])
        assert [one.wait()[0].tokens for one in later] == alone  # type: ignore[index]
    assert any(isinstance(one, ServingError) for one in told)
    for one, expected in zip(told, alone, strict=True):
        assert isinstance(one, ServingError) or one[0].tokens == expected
    assert "failed" in caplog.text
    end(scheduler)


def test_another_model_takes_over_while_sentences_of_the_first_are_encoded() -> None:
    runner, source = SlowSide(most=30), random_source(12, 9, seed=5)
    schedulers, asked = [], []
    turns = threading.Lock()
    for seed in (5, 6):
        scheduler = Scheduler(decoder_of("draft-verify", runner, seed), LIMITS, 9, rows=4, grouped=True, turns=turns)
        asked.append([Asked(ids) for ids in ids_of(source)])
        scheduler.submit([one.sentence for one in asked[-1]])
        scheduler.drain()
        schedulers.append(scheduler)
    for seed, some in zip((5, 6), asked, strict=True):
        alone = decoder_of("draft-verify", EAGER, seed).decode(source, LIMITS).tokens
        assert [one.wait()[0].tokens for one in some] == alone  # type: ignore[index]
    for scheduler in schedulers:
        end(scheduler)


def test_as_many_as_there_are_rows_wait_before_a_larger_table_is_opened() -> None:
    lanes = Lanes(decoder_of("greedy", SlowSide(), 5), LIMITS, 64, 9, 10**6)
    waiting, sizes = [one.sentence for one in map(Asked, ids_of(random_source(100, 9, seed=5)))], []
    for count in (16, 8, 9):
        while count and (lane := lanes.lane_for(9, 9, count)) is not None:
            some = min(count, lane.free)
            lane.admit([waiting.pop() for _ in range(some)])
            count -= some
            sizes.append((lane.capacity, len(lane.live)))
        for lane in lanes.open:
            for _ in range(2):  # until it is known who has a row
                lane.advance()
    assert sizes == [(16, 16), (16, 24), (16, 32), (64, 1)]


@pytest.mark.parametrize(("rows", "group"), [(2, 4), (16, 4), (64, 8), (256, 32)])
def test_few_that_arrive_are_encoded_in_small_groups(rows: int, group: int) -> None:
    ahead = Ahead.of(rows, arriving=True)
    assert (ahead.group, ahead.reports) == (group, 2)
    assert ahead.groups * group == min(max(8, rows), 128)


# --- real streams -----------------------------------------------------------------------------------------------------

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


def arriving(decoder: Decoder, sources: Source, capacity: int) -> list[list[int]]:
    """Some come at every iteration."""
    session, chance = decoder.start_refilled(capacity, LIMITS, sources.longest, arriving=True), random.Random(1)
    tickets: list[int] = []
    found: dict[int, list[int]] = {}
    while len(found) < sources.rows:
        if count := min(session.free, sources.rows - len(tickets), chance.randint(0, 4)):
            tickets += session.admit(sources.slice(len(tickets), len(tickets) + count))
        if len(tickets) > len(found):
            session.advance()
            found |= {one.ticket: one.hypotheses[0].tokens for one in session.take_finished()}
    session.close()
    return [found[ticket] for ticket in tickets]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("kind", ["greedy", "blockwise", "draft-verify", "draft-verify linked", "copy-verify"])
def test_two_streams_give_what_one_gives(kind: str, precision: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same shapes, so the same bits, however the streams overlap."""
    source, found = random_source(300, 40, seed=2), []
    for streams in (2, 1):
        if streams == 1:
            monkeypatch.setattr(CudaGraphRunner, "beside", EAGER.beside.__func__)  # type: ignore[attr-defined]
        heard: list[str] = []
        decoder = decoder_of(kind, CudaGraphRunner("cuda:0", precision, tell=heard.append), 3)
        found.append([arriving(decoder, source, 16) for _ in range(3)])
        found[-1].append(decoder.decode(source, LIMITS, 16).tokens)
        assert heard == []
    assert found[0][0] == found[0][1] == found[0][2]
    assert found[0] == found[1]


@pytest.mark.gpu
@needs_gpu
def test_what_runs_beside_has_memory_and_a_stream_of_its_own() -> None:
    runner = CudaGraphRunner("cuda:0", "fp32")
    here, there = torch.zeros(4, device="cuda:0"), torch.zeros(4, device="cuda:0")
    main = runner.record("main", lambda: here.add_(1), [here])
    with runner.beside():
        assert torch.cuda.current_stream() != torch.cuda.default_stream()
        side = runner.record("side", lambda: there.add_(1), [there])
    for _ in range(100):
        main()
        with runner.beside():
            side()
    runner.join()
    assert (here + there).tolist() == [200.0] * 4


@pytest.mark.gpu
@needs_gpu
def test_a_server_on_two_streams_gives_what_each_sentence_gives_alone() -> None:
    decoder = decoder_of("draft-verify", CudaGraphRunner("cuda:0", "fp64"), 3)
    source = random_source(200, 40, seed=2)
    expected = [decoder.decode(source.slice(row, row + 1), LIMITS).tokens[0] for row in range(source.rows)]
    scheduler = Scheduler(decoder, LIMITS, 40, rows=16, grouped=True)
    asked = [Asked(ids) for ids in ids_of(source)]
    begun, chance = monotonic(), random.Random(0)
    for one in asked:
        one.sentence.watch = None
        scheduler.submit([one.sentence])
        if chance.random() < 0.1:
            one.wait()
    assert [one.wait()[0].tokens for one in asked] == expected  # type: ignore[index]
    assert monotonic() - begun < HANG
    end(scheduler)
