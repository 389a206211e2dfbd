"""Sentences join and leave running batches: outputs are what decoding alone gives, and no row is lost."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from time import monotonic

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import EOS, Hypothesis, Limits, Source
from longstride.runtime.eager import EagerRunner
from longstride.serving.errors import BadRequestError, DeadlineError, DrainingError, OverloadedError, ServingError
from longstride.serving.lanes import Lanes, capacities
from longstride.serving.scheduler import Scheduler, Sentence
from longstride.systems.autoregressive.decoder import Greedy, GreedyOptions
from tests.fakes import CopyDecoder
from tests.models import random_source, tiny_model

HANG = 120
"""Seconds after which a test has hung."""


class Asked:
    """A sentence, and what came of it."""

    def __init__(self, ids: list[int], seconds: float = HANG) -> None:
        self.told: list[list[Hypothesis] | ServingError] = []
        self.events: list[tuple[int, ...]] = []
        self._done = threading.Event()
        self.sentence = Sentence(
            ids, monotonic() + seconds, self._tell, lambda told: self.events.append(told.event.ids)
        )

    def _tell(self, told: list[Hypothesis] | ServingError) -> None:
        self.told.append(told)
        self._done.set()

    def wait(self) -> list[Hypothesis] | ServingError:
        assert self._done.wait(HANG)
        assert len(self.told) == 1
        return self.told[0]


@pytest.fixture
def copying() -> Iterator[Scheduler]:
    scheduler = Scheduler(CopyDecoder(), Limits(max_ratio=100), 64, rows=4, most_waiting=8)
    yield scheduler
    scheduler.stop()
    assert scheduler.join(HANG)


def test_outputs_under_random_company_and_cancellation_are_those_of_each_alone() -> None:
    decoder = Greedy(tiny_model(), EagerRunner(torch.device("cpu"), "fp64"), GreedyOptions())
    source = random_source(36, 12, seed=3)
    rows = [source.ids[row, : source.lengths[row]].tolist() for row in range(source.rows)]
    alone = [decoder.decode(Source.of([row])).tokens[0] for row in rows]
    scheduler = Scheduler(decoder, Limits(), 64, rows=8)
    chance = random.Random(5)
    asked = [Asked(row) for row in rows]
    given_up = set()
    for first in range(0, len(asked), 6):
        some = asked[first : first + 6]
        scheduler.submit([one.sentence for one in some])
        gone = [one for one in some if chance.random() < 0.3]
        scheduler.cancel([one.sentence for one in gone])
        given_up |= set(gone)
        if chance.random() < 0.5:
            some[0].wait()
    for one, expected in zip(asked, alone, strict=True):
        told = one.wait()
        if isinstance(told, ServingError):
            assert one in given_up
        else:
            assert told[0].tokens == expected
            assert [token for ids in one.events for token in ids if token != EOS] == expected
    scheduler.drain()
    assert scheduler.join(HANG)
    assert (scheduler.live, scheduler.waiting, scheduler._lanes.open) == (0, 0, [])


def test_a_full_queue_refuses_at_once_and_takes_all_or_none(
    copying: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying.submit([])
    monkeypatch.setattr(Scheduler, "waiting", 8)
    with pytest.raises(OverloadedError, match="8 sentences wait, 1 came"):
        copying.submit([Asked([5, EOS]).sentence])
    monkeypatch.undo()
    assert copying.waiting == 0


def test_what_no_queue_could_hold_is_not_asked_for_again(copying: Scheduler) -> None:
    with pytest.raises(BadRequestError, match="9 sentences, and at most 8 may wait") as found:
        copying.submit([Asked([5, EOS]).sentence for _ in range(9)])
    assert (found.value.status, found.value.retry_after, copying.waiting) == (413, None, 0)


def test_what_is_late_is_not_decoded(copying: Scheduler) -> None:
    late = Asked([5, EOS], seconds=-1)
    copying.submit([late.sentence])
    assert isinstance(late.wait(), DeadlineError)
    assert late.events == []


def test_draining_finishes_what_is_there_and_refuses_the_rest(copying: Scheduler) -> None:
    asked = [Asked([5] * 20 + [EOS]) for _ in range(8)]
    copying.submit([one.sentence for one in asked])
    copying.drain()
    with pytest.raises(DrainingError):
        copying.submit([Asked([5, EOS]).sentence])
    assert copying.join(HANG)
    assert all(one.wait()[0].tokens == [5] * 20 for one in asked)  # type: ignore[index]


def test_a_failing_step_fails_its_sentences_alone(copying: Scheduler, caplog: pytest.LogCaptureFixture) -> None:
    broken = Asked([5, EOS])
    broken.sentence.watch = lambda told: 1 // 0  # type: ignore[assignment, return-value]
    copying.submit([broken.sentence])
    assert isinstance(broken.wait(), ServingError)
    fine = Asked([5, 6, EOS])
    copying.submit([fine.sentence])
    assert fine.wait()[0].tokens == [5, 6]  # type: ignore[index]


def test_a_table_that_cannot_be_opened_fails_one_sentence_and_not_the_thread(
    copying: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start(self: CopyDecoder, *given: object) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(CopyDecoder, "start", start)
        first = Asked([5, EOS])
        copying.submit([first.sentence])
        assert isinstance(first.wait(), ServingError)
    second = Asked([5, 6, EOS])
    copying.submit([second.sentence])
    assert second.wait()[0].tokens == [5, 6]  # type: ignore[index]


@pytest.mark.parametrize(("rows", "sizes"), [(1, [1]), (2, [1, 2]), (32, [1, 4, 16, 32]), (64, [1, 4, 16, 32, 64])])
def test_sizes_of_tables(rows: int, sizes: list[int]) -> None:
    assert capacities(rows) == sizes


@given(st.lists(st.integers(0, 6), max_size=30), st.integers(1, 40))
def test_whoever_waits_gets_a_row_once_there_is_one(arrivals: list[int], rows: int) -> None:
    lanes = Lanes(CopyDecoder(), Limits(), rows, 16, 64)
    waiting = 0
    for number in [*arrivals, *[0] * (3 * sum(arrivals) + 3)]:
        waiting += number
        while waiting and (lane := lanes.lane_for(16, 3, waiting)) is not None:
            some = [Asked([5, 6, EOS]).sentence for _ in range(min(waiting, lane.free))]
            assert some
            lane.admit(some)
            waiting -= len(some)
        assert not waiting or lanes.live >= rows
        assert len({lane.capacity for lane in lanes.open}) == len(lanes.open)
        for lane in list(lanes.open):
            for ticket, _, _ in lane.advance()[1]:
                del lane.live[ticket]
            if not lane.live:
                lanes.close(lane)
    assert not waiting
    assert not lanes.open
