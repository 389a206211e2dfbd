"""A session whose rows are refilled on the device (:mod:`longstride.verification.queue`): for more sentences than rows.

What is admitted is encoded at once and waits for a row. The host looks at each iteration after it has asked for the
next one, so that the device never waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from longstride.contract import Finished, Hypothesis, Session, Source, Step
from longstride.engine.pool import PoolKey, Slots
from longstride.verification.queue import REPORT, Landing, RefilledState
from longstride.verification.sampling import streams_of


class RefilledSession(Session):
    """`capacity` rows, and places for sentences that wait."""

    def __init__(
        self,
        key: PoolKey,
        make: Callable[[int, int], RefilledState],
        iteration: tuple[int, int],
        calls: int,
        seed: int | None = None,
    ) -> None:
        """`iteration`: tokens drafted, and how many may come between two drafts; it makes so many model `calls`;
        `seed` of random numbers, where tokens are drawn."""
        self.calls = 0
        self.capacity = key.capacity
        self.state = key.acquire(make)
        self.state.begin()
        self._key, self._iteration, self._calls, self._seed = key, iteration, calls, seed
        self.portion = self.state.queue.group
        self._next = 0  # ticket
        self._added = self._taken = self.state.sentences  # numbers of sentences, of all sessions
        self._live: set[int] = set()  # tickets
        self._sent: deque[Landing] = deque()
        self._begun = 0
        self._settled = False

    @property
    def ahead(self) -> int:
        """Iterations that were asked for and not yet looked at."""
        return len(self._sent)

    @property
    def group(self) -> int:
        """Sentences that are encoded together."""
        return self.portion

    @property
    def free(self) -> int:
        """How many places of the queue are known to be empty."""
        return self.state.queue.places - (self._added - self._taken)

    def admit(self, source: Source) -> list[int]:
        """Encode new sentences, those of like length together; they get rows as these become free."""
        if source.rows > self.free:
            raise ValueError(f"expected {self.free} sentences at most, found {source.rows}")
        tickets = list(range(self._next, self._next + source.rows))
        streams = None if self._seed is None else streams_of(self._seed, source.numbers or tickets)
        widths = [self.state.width(length) for length in source.lengths.tolist()]
        for width in sorted(set(widths), reverse=True):
            rows = [row for row, found in enumerate(widths) if found == width]
            for first in range(0, len(rows), self.portion):
                some = rows[first : first + self.portion]
                self._enter(
                    source.select(some), [tickets[row] for row in some], streams and [streams[row] for row in some]
                )
        self._next += source.rows
        self._live.update(tickets)
        return tickets

    def _enter(self, source: Source, tickets: list[int], streams: list[int] | None) -> None:
        numbers = range(self._added, self._added + source.rows)
        places = [number % self.state.queue.places for number in numbers]
        self.state.admit(source, places, tickets, streams)
        self._added += source.rows
        self.state.sentences = self._added
        self.calls += 1

    def advance(self) -> Step:
        """Refill, draft, verify, commit."""
        found, report = self.state.iteration(*self._iteration)()
        landing = self.state.landings[self._begun % len(self.state.landings)]
        landing.send(report)
        self._sent.append(landing)
        self._begun += 1
        return self.state.table.step_of(found, self._calls)

    def take_finished(self) -> list[Finished]:
        """The outputs that were done some iterations ago; once no row can be refilled, those that are done now."""
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
        for row in np.flatnonzero(numbers[:, 1]).tolist():
            ticket, _, length = numbers[row, :3].tolist()
            if ticket in self._live:  # else it was taken or given up before
                self._live.remove(ticket)
                score = float(numbers[row, 3:4].view(np.float64)[0])
                ids = numbers[row, REPORT : REPORT + length - 1].tolist()
                found.append(Finished(ticket, [Hypothesis(ids, score, score)]))
        return found

    def settle(self) -> None:
        """No more sentences will come."""
        self._settled = True

    def cancel(self, ticket: int) -> None:
        """Its place in the queue, or its row, is free as soon as the device comes to it."""
        if ticket not in self._live:
            raise ValueError(f"expected a sentence that is being decoded, found ticket {ticket}")
        self._live.remove(ticket)
        self.state.queue.drop(ticket)

    def close(self) -> None:
        """Leave the table to the next session that wants one like it, unless sentences still wait in it."""
        if not self._live and self._taken == self._added:
            self._key.release(self.state, Slots(self.capacity))
