"""How long whoever comes now would wait, by how long sentences stay in their rows.

While all rows are in use and each is given up after `stay` seconds on average, rows / stay sentences are done in a
second (Little's law), so the last of `waiting` sentences gets a row after about stay * waiting / rows seconds, and may
keep it as long as the longest lately did. Unlike a count of what was done lately this is right from the first sentences
on, when nothing is done yet, and follows a device that slows down, since those that are in rows get older. It
fades while nobody waits: what made sentences stay long a while ago, a kernel that was compiled say, is no reason to
refuse.
"""

from __future__ import annotations

from collections.abc import Sequence

FADE = 0.98
"""Of what was known of stays, so much counts beside a new one."""

HALF = 5.0
"""Seconds after which what was known of stays counts half, where longer than any stay no row was given up."""

UNKNOWN = 10**6
"""Sentences for each row that there is room for where nothing is known of stays."""


class WaitTime:
    """Of tables with so many rows. One thread tells it what happens; any may ask."""

    def __init__(self, rows: int) -> None:
        self._rows = self._inside = rows
        self._stay: float | None = None
        self._longest = self._known = 0.0
        self._admitted: float | None = None

    def stayed(self, seconds: float, now: float) -> None:
        """A sentence is done, after so many seconds in a row, while others waited for one."""
        self._stay, self._longest = self._faded(now)
        self._known = now
        self._stay = seconds if self._stay is None else FADE * self._stay + (1 - FADE) * seconds
        self._longest = max(seconds, FADE * self._longest + (1 - FADE) * self._stay)

    def forget(self) -> None:
        """Discard all measurements, because kernels were compiled meanwhile."""
        self._stay, self._longest = None, 0.0

    def in_rows(self, admitted: Sequence[float]) -> None:
        """When those that are in tables now were admitted, which may be more than there are rows: some wait there."""
        self._inside = max(self._rows, len(admitted))
        self._admitted = sum(admitted) / len(admitted) if admitted else None

    def seconds(self, waiting: int, now: float) -> float:
        """Until the last of so many sentences is done, if it is a long one; 0 where nothing is known."""
        stay, longest = self._expected(now)
        return stay * waiting / self._inside + longest

    def room(self, seconds: float, now: float) -> int:
        """The most sentences that may wait and be done within so many seconds."""
        stay, longest = self._expected(now)
        return max(0, int(self._inside * (seconds - longest) / max(stay, seconds / UNKNOWN)))

    def _expected(self, now: float) -> tuple[float, float]:
        """Seconds that sentences stay in rows, on average and at most."""
        admitted = self._admitted  # which another thread may change meanwhile
        age = 0.0 if admitted is None else now - admitted
        stay, longest = self._faded(now)
        return max(stay or 0.0, age), max(longest, age)

    def _faded(self, now: float) -> tuple[float | None, float]:
        share = 0.5 ** (max(0.0, now - self._known - self._longest) / HALF)
        return None if self._stay is None else share * self._stay, share * self._longest
