"""Whether a table's rows will go on for an iteration that nobody has seen yet: a guess from how long outputs were.

Launching an iteration before the last one was looked at spares the device a wait, and is in vain where all rows have
ended meanwhile. Outputs are about as long as their sources in some proportion, so up to a part of a source's length
hardly any has ended. That part is what most of the last outputs had at least. A wrong guess costs an iteration in vain,
or a wait; what comes out does not depend on it. Numbers on the host alone: knows no tensor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

FIRST_PART = 0.5
"""Of a source's length, before any output was seen."""
OUTPUTS = 24
"""So many of the last ones count,"""
ONE_IN = 8
"""of which one in so many may have been shorter."""
NEVER = -1.0


class Outlook:
    """What is expected of each row, and what the host has seen of it."""

    def __init__(self, rows: int) -> None:
        self.part = FIRST_PART
        """of a source's length that an output is expected to have at least"""
        self._parts: deque[float] = deque(maxlen=OUTPUTS)  # that the last outputs had
        self._sources = [0] * rows
        self._expected = [NEVER] * rows  # tokens that a row is expected to get at least
        self._seen = [0] * rows
        self._gained = [0] * rows  # in the last iteration that was seen

    def open(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        """New sources in these rows; their lengths count EOS."""
        for row, length in zip(rows, lengths, strict=True):
            self._sources[row] = length - 1
            self._expected[row] = self.part * (length - 1)
            self._seen[row] = self._gained[row] = 0

    def goes_on(self) -> bool:
        """Whether some row should still have something to do after the iteration that is under way.

        It is taken to bring as many tokens as the last one did.
        """
        each = zip(self._seen, self._gained, self._expected, strict=True)
        return any(seen + gained <= expected for seen, gained, expected in each)

    def look(self, lengths: Sequence[int]) -> None:
        """How many tokens every row has."""
        self._gained = [length - seen for length, seen in zip(lengths, self._seen, strict=True)]
        self._seen = list(lengths)

    def close(self, row: int) -> None:
        """It has ended, as it was seen last, with EOS; or had ended before."""
        if self._expected[row] == NEVER:
            return
        self._expected[row] = NEVER
        if self._sources[row]:
            self._parts.append((self._seen[row] - 1) / self._sources[row])
            self.part = sorted(self._parts)[len(self._parts) // ONE_IN]
