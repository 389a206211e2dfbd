"""Blocks that follow the clock where nothing is recorded: what one session asks and tells, iteration by iteration.

While no draft is wanted an iteration is greedy search's, and a drafter with a model of its own does not even read the
sentences; it may come in as long as it has missed little. Heads that were left out have nothing to propose: they see
the newest tokens in an iteration as narrow as can be, which tells nothing of drafts. The first iteration of a kind is
not timed, since graphs may have been built in it. What is chosen, and why, is :mod:`longstride.verification.thrift`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter as clock

from longstride.verification.paced import Paced, Terms
from longstride.verification.thrift import NOTHING, Choice, Thrift


class FreePacing:
    """The blocks of one session."""

    def __init__(self, thrift: Thrift, table: Paced, rows: int, terms: Terms) -> None:
        self._thrift, self._table, self._rows, self._terms = thrift, table, rows, terms
        self._choice: Choice = NOTHING
        self._quiet = True
        self._blind = True  # the drafter knows nothing of the newest tokens
        self._in_vain = False
        self._begun: float | None = None

    def choose(self, missed: int) -> int:
        """Tokens to draft next, where the drafter has not seen so many of a row's newest ones."""
        terms = self._terms
        if terms.window is not None and missed > terms.window:
            self._choice = NOTHING  # until all rows are new ones
        elif not self._in_vain:  # otherwise it is what the drafter was shown tokens for
            self._choice = self._thrift.choose(self._rows, not self._table.unread)
        block = self._choice.block
        return min(1, block) if terms.learns and self._blind else block

    def encode(self, all_new: bool) -> None:
        """New sentences come in before the next iteration; whether there are no others."""
        self._quiet = not self._terms.waits
        if all_new:
            self._blind = True
            self._thrift.begin(self._rows)

    def begin(self, block: int, window: int) -> None:
        """An iteration, now."""
        if block and self._table.unread:
            begun = clock()
            self._table.read_along()
            self._thrift.joined(self._choice, self._rows, clock() - begun)
        self._in_vain = self._terms.learns and self._blind and block > 0
        self._blind = not block
        # A table of one row binds its tensors; others build nothing that earlier ones have not built.
        anew = self._thrift.first(self._rows, block) or (self._rows == 1 and not self._table.knows(block, window))
        self._begun = clock() if self._quiet and not anew else None
        self._quiet = True

    def end(self, stood: Sequence[int]) -> None:
        """It is done, and the host has seen so: how many drafted tokens stood in each row that took part."""
        seconds = None if self._begun is None else clock() - self._begun
        if not self._in_vain:
            self._thrift.observe(self._choice, self._rows, stood, seconds)
        elif seconds is not None:
            self._thrift.in_vain(self._choice, self._rows, seconds)
