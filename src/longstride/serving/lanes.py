"""Sessions of several sizes, so that an iteration costs what the load asks for.

A step takes as long as its table has rows, whether they are in use or not, and drafts pay for few rows alone
(:mod:`longstride.verification.draft_policy`). So few sentences are decoded in a small table and many in a large one. A
sentence stays where it was admitted; a table that has become too large takes no new ones, and is closed when empty.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from longstride.contract import Decoder, Hypothesis, Limits, Prefixes, PrefixLimits, Session, Source, Step

if TYPE_CHECKING:
    from longstride.serving.scheduler import Sentence

SHORT = 128
"""Sources of at most so many tokens share tables; longer ones have tables of their own, with fewer rows."""
LEAST_USE = 2
"""A table that would have fewer than half of its rows in use takes no new sentences."""


def capacities(rows: int) -> list[int]:
    """Table sizes up to `rows`: 1, 4, 16, 32, 64. An iteration of 64 takes much longer than one of 32."""
    sizes = [1]
    while sizes[-1] * 4 < rows:
        sizes.append(sizes[-1] * 4)
    half = [rows // 2] if rows // 2 > sizes[-1] else []
    return sizes if rows == 1 else [*sizes, *half, rows]


class Lane:
    """A session and the sentences in it."""

    def __init__(
        self,
        session: Session,
        capacity: int,
        width: int,
        never_next: Tensor | None = None,
        queued: int = 0,
        decoder: str = "",
    ) -> None:
        """`queued`: sentences that may wait here for a row; `decoder`: the name of the one whose session it is."""
        self.capacity, self.width, self._never_next, self.decoder = capacity, width, never_next, decoder
        self.queued = queued
        self.live: dict[int, Sentence] = {}
        """by ticket"""
        self._session = session

    @property
    def free(self) -> int:
        """Sentences that may be admitted."""
        return min(self._session.free, max(0, self.capacity + self.queued - len(self.live)))

    @property
    def group(self) -> int:
        """Sentences that had better be admitted together, where there are as many."""
        return min(self._session.group, self.capacity)

    def admit(self, sentences: Sequence[Sentence]) -> None:
        """Encode sentences and give each a row, now or once there is one."""
        source = Source.of([one.ids for one in sentences], numbers=[one.number for one in sentences])
        if self._never_next is not None:
            source = replace(source, prefixes=Prefixes.of([one.prefix for one in sentences], self._never_next))
        self.live.update(zip(self._session.admit(source), sentences, strict=True))
        for one in sentences:
            one.decoder = self.decoder

    def advance(self) -> tuple[Step, list[tuple[int, Sentence, list[Hypothesis]]]]:
        """One iteration, and what is done after it, with its tickets."""
        step = self._session.advance()
        done = self._session.take_finished()
        return step, [(one.ticket, self.live[one.ticket], one.hypotheses) for one in done]

    def cancel(self, gone: Set[Sentence]) -> None:
        """Free the rows of these, as far as they are here."""
        for ticket in [ticket for ticket, one in self.live.items() if one in gone]:
            self._session.cancel(ticket)
            del self.live[ticket]

    def close(self) -> None:
        """Leave the table to the next one."""
        self._session.close()


class Lanes:
    """The tables that are open, and where a new sentence goes."""

    def __init__(
        self,
        decoder: Decoder,
        limits: Limits,
        rows: int,
        longest: int,
        tokens: int,
        never_next: Tensor | None = None,
        alone: Decoder | None = None,
    ) -> None:
        """At most `rows` sentences side by side in a table, and sources of `tokens` tokens in one of long sources;
        with `never_next` sentences have prefixes (:class:`longstride.contract.Prefixes`); `alone` decodes those that
        are by themselves and whose request names no decoder."""
        self.open: list[Lane] = []
        self._never_next = never_next
        self._decoder, self._limits = decoder, limits if never_next is None else PrefixLimits.of(limits)
        self._alone = alone or decoder
        self._sizes = {min(SHORT, longest): capacities(rows)}
        if longest > SHORT:
            self._sizes[longest] = capacities(max(1, min(rows, tokens // longest)))
        for width, sizes in self._sizes.items():
            if (need := decoder.need(limits, width)) is not None:
                need.check(decoder.name, sizes[-1])

    @property
    def live(self) -> int:
        """Sentences in all tables."""
        return sum(len(lane.live) for lane in self.open)

    @property
    def runs(self) -> dict[str, list[str]]:
        """Names of the decoders of sentences by themselves, and of others; several: which is faster is being tried."""
        return {"alone": self._alone.runs, "side_by_side": self._decoder.runs}

    @property
    def widths(self) -> list[int]:
        """The lengths of sources that tables are made for."""
        return list(self._sizes)

    def rows(self, width: int) -> int:
        """Sentences of a width side by side, at most."""
        return self._sizes[width][-1]

    def width(self, length: int) -> int:
        """The one for a source of so many tokens."""
        return min(width for width in self._sizes if width >= length)

    def lane_for(self, width: int, length: int, waiting: int, named: bool = False) -> Lane | None:
        """Return the table for waiting sources of this width, or None if they have to wait. The first source has
        `length` tokens; `named`: its request names the decoder."""
        mine = [lane for lane in self.open if lane.width == width]
        total = waiting + sum(len(lane.live) for lane in mine)
        wanted = next((size for size in self._sizes[width] if size >= total), self._sizes[width][-1])
        taking = [lane for lane in mine if lane.capacity <= wanted or total * LEAST_USE > lane.capacity]
        if any(lane.queued for lane in taking):  # all go to the largest, there to wait, so that the others become empty
            taking = [max(taking, key=lambda lane: lane.capacity)]
        if fitting := [lane for lane in taking if lane.free]:
            return max(fitting, key=lambda lane: lane.capacity)
        if any(lane.capacity >= wanted for lane in taking):
            return None
        decoder = self._decoder
        if wanted == 1:  # nothing could run beside what encodes it
            decoder = decoder if named else self._alone.upcoming()
            session = decoder.start(1, self._limits, length)
        else:
            session = decoder.start_refilled(wanted, self._limits, width, arriving=True)
        # Waiting for a row takes less of everybody's time than a table much larger, beside which the small one
        # goes on: with as many in a queue as rows, a load that 16 rows can carry seldom spills over.
        queued = min(session.queued, wanted)
        self.open.append(Lane(session, wanted, width, self._never_next, queued, decoder.name))
        return self.open[-1]

    def close(self, lane: Lane) -> None:
        """Of an empty lane, or one that has failed."""
        self.open.remove(lane)
        if not lane.live:
            lane.close()
