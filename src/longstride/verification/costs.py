"""What iterations cost: by rows and by tokens drafted, as measured, and how little it could be where nothing was.

A wide step costs more, the more so the more rows there are: with one row most of a step is fixed costs, which a draft
shares, with many it is arithmetic, which it does not. So what a draft of one size costs in terms of a step without one
only grows with the rows. That, and that neither more rows nor more tokens ever cost less, says of many a shape that it
cannot pay before it was tried. Knows no clock and nothing of what drafts bring.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from operator import itemgetter

TRIALS = 2
"""Times that a shape is measured before it is judged."""
REMEMBERED = 4
"""Measurements of which the least counts: others may have waited for something else."""
REMEMBERED_BARE = 16
"""The same for steps without a draft: these must not turn out to be faster than was thought."""
STALE = 64
"""Measurements of anything after which those of a shape are old: sentences may be longer now, the machine busier."""
EXACT = 3
"""Leading binary digits of a number of rows that count; numbers that agree in these cost about the same."""
NEXT_TO_NOTHING = 1e-12
"""Seconds."""


@cache
def about(rows: int) -> int:
    """The number of rows that stands for this one: itself up to sixteen, then one of eight for each doubling."""
    step = 1 << max(0, (rows - 1).bit_length() - 1 - EXACT)
    return -(-rows // step) * step


class Costs:
    """Seconds that iterations of one decoder took."""

    def __init__(self) -> None:
        self._times: dict[int, dict[int, deque[tuple[int, float]]]] = {}  # by rows, by block: when, and how long
        self._least: dict[int, dict[int, float]] = {}
        self._now = 0

    def add(self, rows: int, block: int, seconds: float) -> None:
        """What one iteration took."""
        rows = about(rows)
        if rows not in self._times:
            self._times[rows], self._least[rows] = {}, {}
        here = self._times[rows]
        if block not in here or self._is_old(here[block]):
            here[block] = deque(maxlen=REMEMBERED if block else REMEMBERED_BARE)
        self._now += 1
        times = here[block]
        times.append((self._now, seconds))
        self._least[rows][block] = max(min(times, key=itemgetter(1))[1], NEXT_TO_NOTHING)

    def known(self, rows: int, block: int) -> bool:
        """Whether what :meth:`seconds` says is new, and not by chance."""
        times = self._of(rows, block)
        return len(times) >= TRIALS and not self._is_old(times)

    def untried(self, rows: int, block: int) -> bool:
        """Whether it is not known, nor was it ever."""
        return not (self.known(rows, block) or self.old(rows, block))

    def old(self, rows: int, block: int) -> bool:
        """Whether it was known once, or could have been, but that may have changed."""
        return self._is_old(self._of(rows, block))

    def set_aside(self, rows: int, block: int) -> None:
        """What was measured is old from now on."""
        times = self._of(rows, block)
        for place, (_, seconds) in enumerate(times):
            times[place] = (self._now - STALE, seconds)

    def _of(self, rows: int, block: int) -> deque[tuple[int, float]]:
        return self._times.get(about(rows), {}).get(block) or deque()

    def _is_old(self, times: deque[tuple[int, float]]) -> bool:
        return bool(times) and times[-1][0] <= self._now - STALE

    def seconds(self, rows: int, block: int) -> float:
        """Of an iteration; of one that was never tried, the least that it could be by what is known of others."""
        rows = about(rows)
        here = self._least.get(rows, {})
        return here[block] if block in here else max([NEXT_TO_NOTHING, *self._bounds(rows, block, here)])

    def _bounds(self, rows: int, block: int, here: dict[int, float]) -> list[float]:
        bounds = [seconds for size, seconds in here.items() if size < block]
        if block:  # of a step without a draft nobody knows how much of a draft's step it is
            bounds += [seconds * (1 + block) / (1 + size) for size, seconds in here.items() if size > block]
        for other, there in self._least.items():
            if block not in there:
                continue
            bounds.append(there[block] * min(1.0, rows / other))
            if other < rows and 0 in there and 0 in here:
                bounds.append(here[0] * there[block] / there[0])
        return bounds
