"""Whose blocks follow the clock: what the sessions of one decoder share of it, and what one session asks and tells.

What is known of drafts holds for all tables of a decoder; what iterations cost, for those of one number of rows. Both
outlive sessions, so that a sentence begins with what earlier ones found out.

Where iterations are recorded, a recording is dear, and few are kept. Then one table of each number of rows tries the
sizes there are, and all others follow: they hold a single one. An iteration that had to be recorded first tells nothing
of what iterations cost, nor does one that waited for new sentences to be encoded. Where nothing is recorded, see
:mod:`longstride.verification.free_pacing`. Knows no slots and no outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter as clock
from weakref import WeakSet, ref

from longstride.verification.block_size import MEMORY, Pace
from longstride.verification.fates import Fates
from longstride.verification.free_pacing import FreePacing
from longstride.verification.paced import Paced, Terms
from longstride.verification.stragglers import Batch
from longstride.verification.thrift import Thrift

MOST_RECORDINGS = 12
"""Of all tables of one decoder together."""
FOLLOWING = 2
"""Sessions that only follow where other numbers of rows are known: a test set's last batch needs no sizes tried."""
PATIENCE = 4
"""Sessions without the table that tries sizes before another one does."""
MOST_SHAPES = 64


@dataclass
class _Known:
    """What is known of tables of one number of rows."""

    pace: Pace
    rows: int
    follow: int
    """sessions that are not to try anything yet"""
    laboratory: ref[Paced] | None = None
    """the table that tries sizes, where not all do"""

    unused: int = 0
    """sessions since it was used last"""

    def tries(self, table: Paced) -> bool:
        """Whether this is that table."""
        return self.laboratory is not None and self.laboratory() is table

    def settle_in(self, table: Paced) -> None:
        """Try sizes in this table, if there is no other for it, or the other has not been used for long."""
        self.unused = 0 if self.tries(table) else self.unused + 1
        if self.unused > PATIENCE:
            self.leave()
        if self.laboratory is None or self.laboratory() is None:
            self.laboratory, self.unused = ref(table), 0

    def leave(self) -> None:
        """Try no more; the table there keeps what others have too."""
        table = self.laboratory() if self.laboratory is not None else None
        self.laboratory = None
        if table is not None:
            for other in table.blocks - {self.pace.block}:
                table.forget(other)


class Paces:
    """What the sessions of one decoder have found out, for drafts of up to `most` tokens."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._fates = Fates(most, MEMORY)
        self._known: dict[int, _Known] = {}
        self._tables: WeakSet[Paced] = WeakSet()
        self._free: Thrift | None = None

    def join(self, table: Paced, rows: int, terms: Terms) -> Pacing | FreePacing:
        """A new session with a table of so many rows."""
        if not table.recorded:
            self._free = self._free or Thrift(self._most)
            return FreePacing(self._free, table, rows, terms)
        known = self._find(rows)
        self._tables.add(table)
        if known.follow:
            known.follow -= 1
        elif not known.pace.explored:
            known.settle_in(table)
        return Pacing(self, known, table, terms)

    def _find(self, rows: int) -> _Known:
        found = self._known.get(rows)
        if found is None:
            if len(self._known) >= MOST_SHAPES:
                self._known.clear()
            near = min(self._known.values(), key=lambda known: abs(known.rows - rows), default=None)
            pace = Pace(self._most, self._fates, None if near is None else near.pace.block)
            found = self._known[rows] = _Known(pace, rows, 0 if near is None else FOLLOWING)
        return found

    def make_room(self, table: Paced, block: int) -> None:
        """Before this table records iterations of this size: others may have to go."""
        keepers = [known for known in self._known.values() if known.laboratory is not None]
        if not any(known.tries(table) for known in keepers):
            for other in table.blocks - {block}:
                table.forget(other)
        for known in keepers:
            if sum(one.recordings for one in self._tables) < MOST_RECORDINGS:
                return
            if known.pace.explored and not known.tries(table):
                known.leave()


class Pacing:
    """The blocks of one session whose iterations are recorded."""

    def __init__(self, paces: Paces, known: _Known, table: Paced, terms: Terms) -> None:
        self._paces, self._known, self._pace, self._table = paces, known, known.pace, table
        self._waits, self._learns, self._window = terms.waits, terms.learns, terms.window
        self._quiet = True
        self._batch = Batch()
        self._block: int | None = None  # of the iteration under way, or the last
        self._in_vain = False
        self._begun: float | None = None

    def choose(self, missed: int) -> int:
        """Tokens to draft next, where the drafter has not seen so many of a row's newest ones."""
        usual = self._pace.block
        block = self._pace.next() if self._tries else usual
        if self._window is None:
            return block
        if block and missed > self._window:
            return 0  # until all rows are new ones
        return usual if not block and missed >= self._window else block

    @property
    def _tries(self) -> bool:
        return self._known.tries(self._table)

    def encode(self, all_new: bool) -> None:
        """New sentences come in before the next iteration; whether there are no others."""
        self._quiet = not self._waits
        self._batch.begin(all_new)

    def begin(self, block: int, window: int) -> None:
        """An iteration, now."""
        self._in_vain = self._learns and self._block == 0 and block > 0
        self._block = block
        self._batch.iterate(block)
        seen_before = self._table.knows(block, window)
        if not seen_before:
            self._paces.make_room(self._table, block)
        self._begun = clock() if seen_before and self._quiet and self._tries else None
        self._quiet = True

    def end(self, stood: Sequence[int]) -> None:
        """It is done, and the host has seen so: how many drafted tokens stood in each row that took part."""
        assert self._block is not None
        if self._in_vain:
            return
        seconds = None if self._begun is None else clock() - self._begun
        self._pace.observe(self._block, stood, seconds)

    def finish(self, lengths: Sequence[int], last: bool) -> None:
        """Sentences are done, whose outputs have so many tokens, the end counted; whether there are no others."""
        found = self._batch.finish(lengths, last)
        if found is not None and self._known.rows > 1:  # one sentence waits for nobody
            self._pace.waited(*found)
