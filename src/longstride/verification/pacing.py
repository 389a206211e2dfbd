"""Whose blocks follow the clock: what the sessions of one decoder share of it, and what one session asks and tells.

What is known of drafts holds for all tables of a decoder; what iterations cost, for those of one number of rows. Both
outlive sessions, so that a sentence begins with what earlier ones found out.

Where iterations are recorded, a recording is dear: the two kinds that there are, with a whole draft and without one,
are both recorded when a table is first used, beside how sentences enter it. An iteration that had to be recorded first
tells nothing of what iterations cost, nor does one that waited for new sentences to be encoded. Where nothing is
recorded, see :mod:`longstride.verification.free_pacing`. Knows no slots and no outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter as clock

from longstride.verification.block_size import MEMORY, Pace
from longstride.verification.fates import Fates
from longstride.verification.free_pacing import FreePacing
from longstride.verification.paced import Paced, Terms
from longstride.verification.stragglers import Batch
from longstride.verification.thrift import Thrift

FOLLOWING = 2
"""Sessions that only follow where other numbers of rows are known: a test set's last batch needs nothing tried."""
MOST_SHAPES = 64


@dataclass
class _Known:
    """What is known of tables of one number of rows."""

    pace: Pace
    rows: int
    follow: int
    """sessions that are not to try anything yet"""


class Paces:
    """What the sessions of one decoder have found out, for drafts of up to `most` tokens."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._fates = Fates(most, MEMORY, by_row=True)
        self._known: dict[int, _Known] = {}
        self._free: Thrift | None = None

    def join(self, table: Paced, rows: int, terms: Terms) -> Pacing | FreePacing:
        """A new session with a table of so many rows."""
        if not table.recorded:
            self._free = self._free or Thrift(self._most)
            return FreePacing(self._free, table, rows, terms)
        known = self._find(rows)
        tries = not known.follow
        known.follow = max(0, known.follow - 1)
        return Pacing(known.pace, table, terms, (0, self._most) if tries else ())

    def _find(self, rows: int) -> _Known:
        found = self._known.get(rows)
        if found is None:
            if len(self._known) >= MOST_SHAPES:
                self._known.clear()
            near = min(self._known.values(), key=lambda known: abs(known.rows - rows), default=None)
            pace = Pace(self._most, self._fates, None if near is None else near.pace.block, rows)
            found = self._known[rows] = _Known(pace, rows, 0 if near is None else FOLLOWING)
        return found


class Pacing:
    """The blocks of one session whose iterations are recorded."""

    def __init__(self, pace: Pace, table: Paced, terms: Terms, tries: Sequence[int]) -> None:
        """`tries`: the sizes of drafts between which it may choose; where there are none, it does as others do."""
        self._pace, self._table, self._sizes = pace, table, tries
        self._waits, self._learns, self._window = terms.waits, terms.learns, terms.window
        self._quiet = True
        self._batch = Batch()
        self._block = 0  # of the iteration under way, or the last; before the first, heads have nothing to propose
        self._iteration = 0
        self._in_vain = False
        self._begun: float | None = None
        self.settled = False
        """the iteration under way and those after it are alike until sentences come in, and nobody has to watch them"""

    def choose(self, missed: int) -> int:
        """Tokens to draft next, where the drafter has not seen so many of a row's newest ones."""
        usual = self._pace.block
        block, watched = self._pace.next(self._iteration + 1) if self._sizes else (usual, False)
        if self._window is not None and block and missed > self._window:
            block, watched = 0, False  # until all rows are new ones
        elif self._window is not None and not block and watched and missed >= self._window:
            block = usual  # one more without a draft would be too many
        self.settled = not watched
        return block

    def encode(self, all_new: bool) -> None:
        """New sentences come in before the next iteration; whether there are no others."""
        self._quiet = not self._waits
        self._batch.begin(all_new)
        if all_new:
            self._block = 0
            self.look_again()

    def look_again(self) -> None:
        """At what iterations cost and bring, as if all sentences were new."""
        self._iteration = 0
        if self._sizes:
            self._pace.begin()

    def begin(self, block: int, window: int) -> None:
        """An iteration, now."""
        self._in_vain = self._learns and self._block == 0 and block > 0
        self._block = block
        self._iteration += 1
        self._batch.iterate(block)
        seen_before = self._table.knows(block, window)
        if not seen_before:
            for size in self._sizes:
                self._table.prepare(size, window)
        self._begun = clock() if seen_before and self._quiet and not self.settled else None
        self._quiet = True

    def end(self, stood: Sequence[int]) -> None:
        """It is done, and the host has seen so: how many drafted tokens stood in each row that took part."""
        seconds = None if self._begun is None else clock() - self._begun
        if not self._in_vain:
            self._pace.observe(self._block, stood, seconds)

    def finish(self, lengths: Sequence[int], last: bool, alone: int = 0) -> None:
        """Sentences are done, whose outputs have so many tokens, the end counted; whether there are no others; and how
        many iterations like the last one there were since this was told last that were not asked about."""
        self._batch.iterate(self._block, alone)
        self._pace.passed(self._block, alone)
        found = self._batch.finish(lengths, last)
        if found is not None:
            self._pace.waited(*found)
