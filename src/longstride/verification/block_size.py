"""How long the next draft should be where every size is a recording: as long as pays, by few sizes, rarely changed.

A long block costs in a large batch; a short one wastes calls where drafts are good; and where drafts are bad or steps
dear, none at all is best, which is greedy search. So what is chosen is the block whose expected tokens per second are
most, stragglers counted (:mod:`longstride.verification.stragglers`), among few sizes, the empty one included. Where any
size may be had at any time, :mod:`longstride.verification.thrift` chooses.

Costs are measured as the loop runs. This changes the shape of steps with the clock, so that in low precision a near-tie
may flip against a fixed block: exact only where kernels do not depend on shapes. Knows no table and reads no clock: who
is asked to try what is :mod:`longstride.verification.pacing`'s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from longstride.verification.fates import Fates
from longstride.verification.stragglers import Stragglers

MEMORY = 0.995
"""What an iteration leaves of what was known of drafts."""
TRIALS = 3
"""Times that a size is measured before it is judged, and the last measurements that count, of which the least."""
MARGIN = 0.02
"""Part by which another block must be better, and"""
MORE_MARGIN = 0.05
"""how much that grows with every change of mind."""
FIRST_PAUSE = 16
"""Iterations before the next best size is measured again, once; twice as many each time, up to"""
LONGEST_PAUSE = 1024
NEXT_TO_NOTHING = 1e-12
"""Seconds."""


def sizes(most: int) -> list[int]:
    """0, the powers of two, and `most`."""
    powers = [1 << place for place in range(most.bit_length()) if 1 << place < most]
    return sorted({0, *powers, most})


def few_sizes(most: int) -> list[int]:
    """0, `most`, and a power of two about half of it."""
    return sorted({0, 1 << max(0, ((most + 1) // 2).bit_length() - 1), most} if most > 1 else {0, most})


class Pace:
    """What block pays, for tables of one shape. It begins with the longest.

    The iterations of some tables are trials: they draft what :meth:`next` says, and are timed. Others only follow, by
    `block`, and tell what became of it.
    """

    def __init__(self, most: int, fates: Fates, block: int | None = None) -> None:
        """`block`: what to begin with for those who follow, where something is known of it."""
        self.block = most if block is None else block
        """tokens to draft, as far as is known"""
        self.explored = False
        """whether every size that promised anything was tried"""
        self._fates, self._stragglers = fates, Stragglers()
        self._times = {size: deque[float](maxlen=TRIALS) for size in few_sizes(most)}
        self._trial: int | None = most
        self._missing = TRIALS  # measurements of it
        self._since = 0
        self._pause = FIRST_PAUSE
        self._margin = MARGIN

    def next(self) -> int:
        """Tokens to draft in a trial."""
        return self.block if self._trial is None else self._trial

    def observe(self, block: int, stood: Sequence[int], seconds: float | None) -> None:
        """What became of an iteration: how many tokens stood in each row that took part; how long it took, if known."""
        if block:
            self._fates.add(block, stood)
        if seconds is not None:
            self._times[block].append(seconds)
            self._missing -= block == self._trial
        self._since += 1
        if self._trial is not None and self._missing <= 0:
            self._trial = None
            self._choose()
        elif self.explored and self._since > self._pause:
            self._since, self._pause = 0, min(2 * self._pause, LONGEST_PAUSE)
            self._choose()
            if self._trial is None:
                self._measure_again()

    def waited(self, block: int, brought: float) -> None:
        """A whole batch drafted so many tokens throughout, and an iteration brought this many of its longest output."""
        if block:
            self._stragglers.observe(brought, self._fates.tokens(block))

    def _choose(self) -> None:
        best = max(self._times, key=self.tokens_per_second)
        if not self._times[best]:
            self._try(best, TRIALS)
            if not self.explored:
                return
            best = max(self._measured, key=self.tokens_per_second)
        if not self.explored:
            self.explored, self._since = True, 0
        if self.tokens_per_second(best) > (1 + self._margin) * self.tokens_per_second(self.block):
            self.block = best
            self._margin += MORE_MARGIN

    def _measure_again(self) -> None:
        """The next best: its cost may have been bad luck, and drafts may have become better or worse since."""
        others = [size for size in self._measured if size != self.block]
        if others:
            self._try(max(others, key=self.tokens_per_second), 1)

    def _try(self, block: int, times: int) -> None:
        self._trial, self._missing = block, times

    @property
    def _measured(self) -> list[int]:
        return [size for size, times in self._times.items() if times]

    def tokens_per_second(self, block: int) -> float:
        """Expected, with a draft of so many tokens."""
        return self._stragglers.tokens(self._fates.tokens(block)) / self._expected(block)

    def _expected(self, block: int) -> float:
        """Seconds of an iteration; of one that was never tried, the least that it could be."""
        if self._times[block]:
            return min(self._times[block])
        if not block:
            return NEXT_TO_NOTHING  # what a drafter takes is not known before it was left out once
        least = {size: min(self._times[size]) for size in self._measured}
        bounds = [seconds for size, seconds in least.items() if size < block]
        bounds += [seconds * (1 + block) / (1 + size) for size, seconds in least.items() if size > block]
        return max(bounds, default=1.0)
