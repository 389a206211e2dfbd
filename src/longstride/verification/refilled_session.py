"""A session whose rows are refilled on the device (:mod:`longstride.verification.queue`): for more sentences than rows.

What is admitted is encoded beside iterations and waits for a row. The host looks at each iteration after it has asked
for the next one, so that the device never waits for it. Once nobody waits and few rows are left, these go on in a
smaller table, as an ordinary session's do (:mod:`longstride.verification.draining`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from longstride.contract import Finished, Hypothesis, Session, Source, Step
from longstride.engine.pool import Slots
from longstride.verification.draining import Drain
from longstride.verification.queue import REPORT, Ahead, Landing, RefilledState
from longstride.verification.sampling import streams_of
from longstride.verification.session import DecodePlan, Drafting, VerificationSession


class RefilledSession(Session):
    """`capacity` rows, and places for sentences that wait."""

    def __init__(
        self,
        plan: DecodePlan,
        block: int,
        capacity: int,
        longest_source: int,
        drafting: Drafting,
        arriving: bool = False,
    ) -> None:
        """`block` tokens are drafted; `drafting` says how many where there are fewer rows; `arriving`: sentences come
        a few at a time."""
        key = plan.key(capacity, longest_source)
        self.calls = 0
        self.capacity = key.capacity
        self._ahead = Ahead.of(key.capacity, arriving)
        self.portion = self._ahead.group
        self._plan, self._block, self._longest_source, self._drafting = plan, block, longest_source, drafting
        self._key = replace(key, family=("refilled", self._ahead, key.family))
        self.state = self._key.acquire(self._new_state)
        self.state.begin()
        self._calls = plan.calls(block)
        self._next = 0  # ticket
        self._added = self._taken = self.state.sentences  # numbers of sentences, of all sessions
        self._live: dict[int, tuple[Source, int]] = {}  # by ticket, a source and the sentence's row in it
        self._sent: deque[Landing] = deque()
        self._read_last: Landing | None = None
        self._begun = 0
        self._settled = False
        self._drain = Drain(drafting, longest_source)
        self._rest: VerificationSession | None = None
        """what goes on with the last sentences in a smaller table"""

    def _new_state(self, rows: int, longest_source: int) -> RefilledState:
        return RefilledState(self._plan.new_state(rows, longest_source), self._plan.model, self._ahead)

    @property
    def ahead(self) -> int:
        """Iterations that were asked for and not yet looked at."""
        return len(self._sent)

    @property
    def group(self) -> int:
        """Sentences that are encoded together."""
        return self.portion if self._rest is None else self._rest.group

    @property
    def queued(self) -> int:
        """The places of the queue."""
        return self.state.queue.places if self._rest is None else 0

    @property
    def free(self) -> int:
        """How many places of the queue are known to be empty."""
        if self._rest is not None:
            return self._rest.free
        return self.state.queue.places - (self._added - self._taken)

    def admit(self, source: Source) -> list[int]:
        """Encode new sentences, those of like length together; they get rows as these become free."""
        if self._rest is not None:
            return self._rest.admit(source)
        if source.rows > self.free:
            raise ValueError(f"expected {self.free} sentences at most, found {source.rows}")
        self._drain = Drain(self._drafting, self._longest_source)
        tickets = list(range(self._next, self._next + source.rows))
        sampled = self._plan.acceptance.sampling is not None
        streams = streams_of(self._plan.seed, source.numbers or tickets) if sampled else None
        widths = [self.state.width(length) for length in source.lengths.tolist()]
        for width in sorted(set(widths), reverse=True):
            rows = [row for row, found in enumerate(widths) if found == width]
            for first in range(0, len(rows), self.portion):
                some = rows[first : first + self.portion]
                known, drawn = [tickets[row] for row in some], streams and [streams[row] for row in some]
                self._enter(source.select(some), known, drawn, width)
        self._next += source.rows
        self._live.update((ticket, (source, row)) for row, ticket in enumerate(tickets))
        return tickets

    def _enter(self, source: Source, tickets: list[int], streams: list[int] | None, width: int) -> None:
        numbers = range(self._added, self._added + source.rows)
        places = [number % self.state.queue.places for number in numbers]
        self.state.admit(source, places, tickets, streams, width)
        self._added += source.rows
        self.state.sentences = self._added
        self.calls += 1

    def advance(self) -> Step:
        """Refill, draft, verify, commit."""
        if self._rest is not None:
            before = self._rest.calls
            step = self._rest.advance()
            self.calls += self._rest.calls - before
            return step
        waiting = self._added - self._taken
        if waiting and len(self._live) <= waiting:  # nobody is known to have a row: there is nothing to encode beside
            self._plan.runner.join()
        found, report = self.state.iteration(self._block, self._plan.window(self._block))()
        landing = self.state.landings[self._begun % len(self.state.landings)]
        landing.send(report)
        self._sent.append(landing)
        self._begun += 1
        return self.state.table.step_of(found, self._calls)

    def take_finished(self) -> list[Finished]:
        """The outputs that were done some iterations ago; once no row can be refilled, those that are done now."""
        if self._rest is not None:
            return self._rest.take_finished()
        last = self._settled and self._taken == self._added
        found: list[Finished] = []
        while len(self._sent) >= (1 if last else len(self.state.landings)):
            found += self._read(self._sent.popleft())
        return found

    def _read(self, landing: Landing) -> list[Finished]:
        landing.wait()
        self.calls += self._calls
        numbers = landing.numbers
        self._taken = int(numbers[0, REPORT - 1])
        found = []
        for row, (ticket, done, length) in enumerate(numbers[:, :3].tolist()):
            if done and ticket in self._live:  # else it was taken or given up before
                del self._live[ticket]
                score = float(numbers[row, 3:4].view(np.float64)[0])
                ids = numbers[row, REPORT : REPORT + length - 1].tolist()
                found.append(Finished(ticket, [Hypothesis(ids, score, score)]))
        self._read_last = landing
        return found

    def settle(self) -> None:
        """No more sentences will come; the last ones may go on in a smaller table."""
        if self._rest is not None:
            self._rest.settle()
            return
        self._settled = True
        drained = self._taken == self._added and not self._sent and self._read_last is not None
        if not self._live or not drained or len(self._live) * 2 > self.capacity or not self.state.table.movable:
            return
        assert self._read_last is not None
        told = enumerate(self._read_last.numbers[:, :3].tolist())
        held = {ticket: (row, length) for row, (ticket, _, length) in told if ticket in self._live}
        shape, lengths = (self.capacity, self._key.longest_source), [length for _, length in held.values()]
        if width := self._drain.width(self._plan, shape, held, lengths, self._live):
            self._move(width, {ticket: row for ticket, (row, _) in held.items()})

    def _move(self, rows: int, held: dict[int, int]) -> None:
        """Go on in a table of so many rows, with what stands in these."""
        plan, block = self._drafting(rows)
        self._rest = VerificationSession(plan, block, rows, self._longest_source, self._drafting)
        self._rest.take_over(
            self.capacity, self.state.table, held, self._live, self._next, self._plan.window(self._block)
        )
        self._live = {}
        self._key.release(self.state, Slots(self.capacity))

    def cancel(self, ticket: int) -> None:
        """Its place in the queue, or its row, is free as soon as the device comes to it."""
        if self._rest is not None:
            self._rest.cancel(ticket)
            return
        if ticket not in self._live:
            raise ValueError(f"expected a sentence that is being decoded, found ticket {ticket}")
        del self._live[ticket]
        self.state.queue.drop(ticket)

    def close(self) -> None:
        """Leave the table to the next session that wants one like it, unless somebody still waits for sentences."""
        if self._rest is not None:
            self._rest.close()
        elif not self._live:
            if self._taken != self._added:
                self.state.queue.skip()
            self._key.release(self.state, Slots(self.capacity))
