"""Tables that drain: once nobody waits and few rows are left, these go on in a smaller table.

An iteration takes as long as its table has rows, in use or not, and drafts pay for few rows alone. One output that
loops to the longest length would otherwise keep all rows of a large table running. A move copies rows, which takes
about as long as an iteration; where iterations are recorded a new table has to be recorded first, which takes as long
as hundreds of them. So a table that is there already is taken at once, and a new one made when as much was spent on
idle rows as recording it will take: over a whole run, twice that is the most that can be lost. By the same reckoning
rows wait before they move to where a drafter has to read all that is committed.

Rows that drafts bring too little go on without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from longstride.contract import Source
from longstride.engine.pool import PoolKey
from longstride.verification.session import DecodePlan, Drafting, Sources

WORTH = 1 << 14
"""Idle rows, counted once an iteration, that took as long as recording a smaller table does: at some 6 microseconds
each (base model, 128 rows, H200; by the records, not measured by itself) 0.1 seconds."""
FEWER = 8
"""A table is recorded for rows that drain if it has so many times fewer of them."""
LEAST_LEFT = 16
"""Tokens that some row may still get, at least, or a move is not worth its while."""
CATCH_UP = 64
"""Iterations that take as long as a move does where a drafter has to catch up: it reads the source again and what is
committed, by PyTorch (BART, titles, 32 rows, H200: 8 to 26 ms a batch, an iteration 0.25)."""

LOOK_EVERY = 8
"""Iterations between two looks at what drafts bring: on two cores a look took 0.09 ms, an iteration 1.9 (both beside a
profiler)."""
PATIENCE = 48
"""Iterations after which it is asked what drafts brought to a row: a sentence is mostly done in fewer."""
LEAST_GAIN = 1.5
"""Tokens an iteration that drafts must bring: one with a draft takes 1.5 times one without (base model, one row, H200:
1.87 ms a line at 4.20 tokens an iteration, greedy search 5.33)."""
WASTED = 16
"""Idle rows that take as long as a draft which brings too little."""

Shape = tuple[int, int]
"""Of a table: its rows, and the longest source that fits."""


class Gains:
    """What iterations bring to the rows that are left: drafts hardly ever foresee an output that loops, for one."""

    def __init__(self) -> None:
        self._asked = 0
        self._first: dict[int, int] = {}
        self._seen: Counter[int] = Counter()

    def due(self) -> bool:
        """Whether it is time for a look. Asked once an iteration."""
        self._asked += 1
        return self._asked % LOOK_EVERY == 0

    def poor(self, lengths: Mapping[int, int]) -> bool:
        """Whether drafts cost more than they bring, by how much is committed for these tickets. Asked when due."""
        for ticket, length in lengths.items():
            self._first.setdefault(ticket, length)
        longest = max((self._seen[ticket] for ticket in lengths), default=0)
        iterations = sum(self._seen[ticket] for ticket in lengths)
        self._seen.update(dict.fromkeys(lengths, LOOK_EVERY))
        gained = sum(length - self._first[ticket] for ticket, length in lengths.items())
        return longest >= PATIENCE and gained < LEAST_GAIN * iterations


class Drain:
    """When the rows of one session move, and to how many. Made anew when sentences come: how long others lasted says
    nothing of these."""

    def __init__(self, drafting: Drafting, longest_source: int) -> None:
        self._drafting, self._longest_source = drafting, longest_source
        self._asked: tuple[Shape, int, bool] | None = None
        self._iterations = 0  # in which rows might have moved
        self._keys: dict[int, PoolKey] = {}  # by width

    def width(
        self, plan: DecodePlan, shape: Shape, tickets: Iterable[int | None], lengths: Sequence[int], sources: Sources
    ) -> int | None:
        """How many rows a table should have for these sentences, of which so much is committed in a table of that
        shape; None: they stay. Asked once an iteration."""
        (rows, _), live = shape, len(lengths)
        widths = [plan.runner.round_up(live)]
        while widths[-1] * 4 <= rows:
            widths.append(widths[-1] * 2)
        if widths[0] * 2 > rows:
            return None
        plan.idle[shape] += rows - live
        patient = self._iterations >= CATCH_UP
        self._iterations += 1
        new = widths[0] * FEWER <= rows and plan.idle[shape] >= WORTH
        if self._asked == (shape, live, patient) and not new:  # nothing has changed
            return None
        self._asked = (shape, live, patient)
        if self._left(plan, tickets, lengths, sources) < LEAST_LEFT:
            return None
        fit = [width for width in widths if patient or not self._lags(plan, width)]
        there = [width for width in fit if self._key(width).ready]
        if there or not new or widths[0] not in fit:
            return min(there, default=None)
        plan.idle[shape] = 0
        return widths[0]

    def _key(self, width: int) -> PoolKey:
        if width not in self._keys:
            self._keys[width] = self._drafting(width)[0].key(width, self._longest_source)
        return self._keys[width]

    def _lags(self, plan: DecodePlan, width: int) -> bool:
        """Whether such a table has a model that drafts, and this plan none that remembers the same."""
        drafter = self._drafting(width)[0].drafter
        return drafter.calls > 0 and drafter.remembers != plan.drafter.remembers

    @staticmethod
    def _left(plan: DecodePlan, tickets: Iterable[int | None], lengths: Sequence[int], sources: Sources) -> int:
        """Tokens that may still come, at most, in the row that may get most of them."""
        found = []
        for ticket, length in zip(tickets, lengths, strict=True):
            assert ticket is not None
            source, row = sources[ticket]
            found.append(plan.limits.longest_output(int(source.lengths[row])) - length)
        return max(found)


def picked(found: Sequence[tuple[Source, int]]) -> Source:
    """Single sentences of several sources, each with its row there, as one; some may have a draft, and others none."""
    each = [source.select([row]) for source, row in found]
    whole = Source.of([row for one in each for row in _rows(one)])
    if all(one.drafts is None for one in each):
        return whole
    drafts = [row for one in each for row in ([[]] if one.drafts is None else _rows(one.drafts))]
    return replace(whole, drafts=Source.of(drafts))


def _rows(source: Source) -> list[list[int]]:
    return [ids[:length] for ids, length in zip(source.ids.tolist(), source.lengths.tolist(), strict=True)]
