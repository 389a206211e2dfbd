"""Sentences of many requests in running batches: who is admitted when, and who hears of what came out.

One thread decodes. It sleeps while there is nothing to do, admits waiting sentences at every iteration, the earliest
deadline first, and frees the rows of those whose clients have gone. What waits is bounded: what has no room, or would
not be done in time, is refused when it comes.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Any, Protocol

from torch import Tensor

from longstride.contract import Decoder, Hypothesis, Limits, LongstrideError, Step
from longstride.contract.trace import Event, events_of
from longstride.serving.errors import (
    STOPPED,
    BadRequestError,
    CancelledError,
    DeadlineError,
    DrainingError,
    OverloadedError,
    ServingError,
)
from longstride.serving.lanes import Lane, Lanes
from longstride.serving.wait_time import WaitTime

CAUTION = 2.0
"""What is taken in should be done in time, though sentences differ and other programs want the device, too: waiting is
taken to be so many times as long."""


@dataclass(frozen=True)
class Progress:
    """What one iteration did to a sentence, and when it was over."""

    event: Event
    whens: list[int] | None
    """of writes that were held back, the iterations they belong to"""
    seconds: float
    """since the sentence was admitted: its encoder and its iterations, and whatever else the device did meanwhile"""


@dataclass(eq=False)
class Sentence:
    """One sentence of a request. Its calls are made by the scheduler's thread, and must not take long."""

    ids: list[int]
    """ending in EOS"""
    deadline: float
    """by :func:`time.monotonic`"""
    done: Callable[[list[Hypothesis] | ServingError], None]
    """told once: its outputs, best first, or why there are none"""
    watch: Callable[[Progress], None] | None = None
    """told of every iteration"""
    number: int = 0
    """which sentence of its request it is: random numbers belong to that"""
    prefix: Sequence[int] = ()
    """what its output begins with, for schedulers that take such"""
    named: bool = False
    """True if the request names the decoder"""
    decoder: str = field(default="", init=False)
    """name of the one that decodes it, once it is admitted"""
    came: float = field(default_factory=monotonic)
    admitted: float | None = None
    first: float | None = None
    """when the first iteration was over, or one at which it was still being encoded"""
    over: bool = field(default=False, init=False)
    """whether nobody waits for it any more"""

    def end(self, told: list[Hypothesis] | ServingError) -> None:
        """Tell the one who asked."""
        self.over = True
        self.done(told)


class Watcher(Protocol):
    """Counts what a scheduler does."""

    def iteration(self, step: Step, decoder: str) -> None:
        """All rows of a decoder's table have advanced."""

    def finished(self, sentence: Sentence, hypotheses: list[Hypothesis]) -> None:
        """A sentence is done."""

    def failed(self, why: ServingError) -> None:
        """A sentence will not be done."""


class Scheduler:
    """Decodes with one decoder; its thread starts with the first sentence."""

    def __init__(
        self,
        decoder: Decoder,
        limits: Limits,
        longest: int,
        rows: int = 32,
        most_waiting: int = 1024,
        most_tokens: int = 4096,
        grouped: bool = False,
        turns: AbstractContextManager[Any] | None = None,
        watcher: Watcher | None = None,
        never_next: Tensor | None = None,
        alone: Decoder | None = None,
    ) -> None:
        """`longest`: the most tokens of a source; `rows`: sentences side by side; `most_tokens`: those of long sources
        side by side; `grouped`: sentences had better be admitted many at a time; `turns`: held while the device works,
        where others use it too; `never_next`: sentences have prefixes, behind which these ids [vocabulary] may not
        stand; `alone` decodes sentences that are by themselves."""
        self.limits, self.obeys, self.decoder = limits, decoder.obeys, decoder.name
        self._lanes = Lanes(decoder, limits, rows, longest, most_tokens, never_next, alone)
        self._most_waiting, self._grouped = most_waiting, grouped
        self._turns, self._watcher = turns or nullcontext(), watcher
        self._changed = threading.Condition()
        self._waiting: dict[int, list[tuple[float, int, Sentence]]] = {width: [] for width in self._lanes.widths}
        self._order = count()
        self._gone: set[Sentence] = set()
        self._draining = self._stopping = False
        self._thread: threading.Thread | None = None
        self.used = monotonic()
        """when sentences came last"""
        self._wait_times = {width: WaitTime(self._lanes.rows(width)) for width in self._lanes.widths}

    # --- for any thread ----------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Sentences that have no row yet."""
        return sum(len(heap) for heap in self._waiting.values())

    @property
    def live(self) -> int:
        """Sentences that are being decoded."""
        return self._lanes.live

    @property
    def runs(self) -> dict[str, list[str]]:
        """Names of the decoders of sentences by themselves, and of others; several: which is faster is being tried."""
        return self._lanes.runs

    @property
    def draining(self) -> bool:
        """Whether it takes no more sentences."""
        return self._draining or self._stopping

    def submit(self, sentences: Sequence[Sentence]) -> None:
        """Take sentences in, all of them or none."""
        if not sentences:
            return
        with self._changed:
            self.used = monotonic()
            self.check_room([len(one.ids) for one in sentences], sentences[0].deadline)
            for one in sentences:
                heapq.heappush(self._waiting[self._lanes.width(len(one.ids))], (one.deadline, next(self._order), one))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="longstride-scheduler", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def check_room(self, lengths: Sequence[int], deadline: float) -> None:
        """Refuse sentences, whose sources have so many tokens, for which there is no room or no time."""
        if self.draining:
            raise DrainingError("The server is about to stop and takes no more requests.")
        if len(lengths) > self._most_waiting:  # to ask again later would not help
            raise BadRequestError(
                f"Invalid request: {len(lengths)} sentences, and at most {self._most_waiting} may wait; send fewer at "
                "a time.",
                413,
            )
        if self.waiting + len(lengths) > self._most_waiting:
            raise OverloadedError(
                f"The server is full: {self.waiting} sentences wait, {len(lengths)} came, and {self._most_waiting} may."
            )
        now, widths = monotonic(), Counter(map(self._lanes.width, lengths))
        wait = max(self._wait(width, more, now) for width, more in widths.items())
        if wait and wait > deadline - now:
            raise OverloadedError(f"The server is full: this would take about {wait:.0f} seconds.")

    def room(self, seconds: float) -> int:
        """Sentences, if they are short, for which there is room and which would be done within so many seconds."""
        width = self._lanes.widths[0]
        waiting, room = len(self._waiting[width]), self._most_waiting - self.waiting
        return min(room, self._wait_times[width].room(seconds / CAUTION, monotonic()) - waiting) if waiting else room

    def forget_times(self) -> None:
        """Let nothing that was decoded until now tell how long others will wait."""
        for one in self._wait_times.values():
            one.forget()

    def cancel(self, sentences: Sequence[Sentence]) -> None:
        """Give sentences up: those that wait get no row, and rows of others are freed before the next iteration."""
        with self._changed:
            self._gone.update(sentences)
            self._changed.notify_all()

    def drain(self) -> None:
        """Refuse new sentences, and end once all others are done."""
        with self._changed:
            self._draining = True
            self._changed.notify_all()

    def stop(self) -> None:
        """End now: all sentences fail."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread to end, after :meth:`drain` or :meth:`stop`; whether it has."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    def _wait(self, width: int, more: int, now: float) -> float:
        """Seconds until so many more sentences are done, behind all that wait, as far as is known; 0: nobody waits."""
        waiting = len(self._waiting[width])
        return CAUTION * self._wait_times[width].seconds(waiting + more, now) if waiting else 0.0

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self.waiting or self._gone or self._lanes.open or self._draining or self._stopping):
                    self._changed.wait()
                gone, self._gone = self._gone, set()
                over = self._stopping or (self._draining and not self.waiting and not self._lanes.open)
            self._give_up(gone)
            if over:
                break
            self.iterate()
        waiting = [entry[2] for heap in self._waiting.values() for entry in heap]
        for sentence in [*waiting, *(one for lane in self._lanes.open for one in lane.live.values())]:
            self._fail(sentence, DrainingError(STOPPED))

    def iterate(self) -> None:
        """One iteration of all tables."""
        with self._turns:
            self._admit()
            self._look()
            for lane in list(self._lanes.open):
                self._advance(lane)

    def _admit(self) -> None:
        """Give rows to those who wait, the earliest deadline first, as far as there are some."""
        for width, heap in self._waiting.items():
            while heap:
                with self._changed:
                    first = heapq.heappop(heap)
                if first[0] < monotonic():
                    why = DeadlineError("The time for this request was over before it was begun.")
                    self._fail(first[2], why)
                    continue
                waiting = 1 + len(heap)
                try:
                    lane = self._lanes.lane_for(width, len(first[2].ids), waiting, first[2].named)  # takes its time
                except Exception as error:  # no memory for one, say: whoever comes next is to be served all the same
                    self._failed([first[2]], error)
                    continue
                if lane is None or (self._grouped and lane.free < min(waiting, lane.group)):
                    with self._changed:
                        heapq.heappush(heap, first)
                    break
                with self._changed:
                    more = min(lane.free - 1, len(heap))
                    chosen = [first[2], *(heapq.heappop(heap)[2] for _ in range(more))]
                for sentence in chosen:
                    sentence.admitted = monotonic()
                try:
                    lane.admit(chosen)
                except Exception as error:
                    self._broken(lane, error, chosen)

    def _look(self) -> None:
        """How old those are that others wait for."""
        for width, heap in self._waiting.items():
            lanes = [lane for lane in self._lanes.open if lane.width == width] if heap else []
            live = [one.admitted for lane in lanes for one in lane.live.values()]
            self._wait_times[width].in_rows([admitted for admitted in live if admitted is not None])

    def _advance(self, lane: Lane) -> None:
        """One iteration of a table."""
        try:
            step, finished = lane.advance()
            watched = {ticket: (one.watch, one.admitted) for ticket, one in lane.live.items() if one.watch is not None}
            events = list(events_of(step)) if watched else []  # which waits for the device
            now = monotonic()
            for ticket, event, whens in events:
                if ticket in watched:
                    watch, admitted = watched[ticket]
                    watch(Progress(event, whens, now - (admitted or now)))
        except Exception as error:
            self._broken(lane, error)
            return
        for sentence in lane.live.values():
            sentence.first = sentence.first or now
        if self._watcher is not None:
            self._watcher.iteration(step, lane.decoder)
        for ticket, sentence, hypotheses in finished:
            del lane.live[ticket]
            if self._watcher is not None:
                self._watcher.finished(sentence, hypotheses)
            if self._waiting[lane.width]:  # else it could have been slower
                self._wait_times[lane.width].stayed(now - (sentence.admitted or now), now)
            sentence.end(hypotheses)
        if not lane.live:
            self._lanes.close(lane)

    def _give_up(self, gone: set[Sentence]) -> None:
        """Sentences whose clients have gone."""
        if not gone:
            return
        with self._changed:
            for width, heap in self._waiting.items():
                self._waiting[width] = [entry for entry in heap if entry[2] not in gone]
                heapq.heapify(self._waiting[width])
        for lane in list(self._lanes.open):
            try:
                lane.cancel(gone)
            except Exception as error:
                self._broken(lane, error)
                continue
            if not lane.live:
                self._lanes.close(lane)
        for sentence in gone:
            self._fail(sentence, CancelledError("The client has gone."))

    def _broken(self, lane: Lane, error: Exception, chosen: Sequence[Sentence] = ()) -> None:
        """Something went wrong within a table: it is left, and those who were in it are told."""
        self._lanes.open.remove(lane)
        self._failed({*lane.live.values(), *chosen}, error)

    def _failed(self, held: Collection[Sentence], error: Exception) -> None:
        """Tell of an error that is not theirs."""
        logging.getLogger(__name__).error("A batch of %d sentences failed.", len(held), exc_info=error)
        told = str(error) if isinstance(error, LongstrideError) else f"internal error: {type(error).__name__}."
        for sentence in held:
            self._fail(sentence, ServingError(told))

    def _fail(self, sentence: Sentence, why: ServingError) -> None:
        if not sentence.over:
            if self._watcher is not None:
                self._watcher.failed(why)
            sentence.end(why)
