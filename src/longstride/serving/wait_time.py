"""How long whoever comes now would wait, by how long sentences stay in their rows.

While all rows are in use and each is given up after `stay` seconds, rows / stay sentences are done in a second
(Little's law), so the last of `waiting` sentences is done after about stay * (1 + waiting / rows) seconds. Unlike a
count of what was done lately this is right from the first sentences on, when nothing is done yet, and follows a device
that slows down, since those that are in rows get older.
"""

from __future__ import annotations

from collections.abc import Sequence

FADE = 0.95
"""Of what was known of stays, so much counts beside a new one."""

UNKNOWN = 10**6
"""Sentences for each row that there is room for where nothing is known of stays."""


class WaitTime:
    """Of tables with so many rows. One thread tells it what happens; any may ask."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._stay: float | None = None
        self._admitted: float | None = None

    def stayed(self, seconds: float) -> None:
        """A sentence is done, after so many seconds in a row, while others waited for one."""
        self._stay = seconds if self._stay is None else FADE * self._stay + (1 - FADE) * seconds

    def in_rows(self, admitted: Sequence[float]) -> None:
        """When those that are in rows now have got them."""
        self._admitted = sum(admitted) / len(admitted) if admitted else None

    def seconds(self, waiting: int, now: float) -> float:
        """Until the last of so many sentences is done; 0 where nothing is known."""
        return self._expected(now) * (1 + waiting / self._rows)

    def room(self, seconds: float, now: float) -> int:
        """The most sentences that may wait and be done within so many seconds."""
        stay = max(self._expected(now), seconds / UNKNOWN)
        return max(0, int(self._rows * (seconds / stay - 1)))

    def _expected(self, now: float) -> float:
        admitted = self._admitted  # which another thread may change meanwhile
        return max(self._stay or 0.0, 0.0 if admitted is None else now - admitted)
