"""Whether to draft at all where each way is a recording: whichever brings more tokens a second.

A draft costs in a large batch and saves calls in a small one; where drafts are bad or steps dear none is best, which is
greedy search. Both kinds of iterations are recorded when a table is made, so that nothing has to be recorded when an
opinion changes: a recording takes as long as some hundred iterations. What drafts bring is counted with stragglers
(:mod:`longstride.verification.stragglers`). Where any size may be had at any time, it is
:mod:`longstride.verification.thrift` that chooses.

Where no draft is thought best, batches begin with a few all the same, since texts change, as often as what that loses
stays a small share of the time: an iteration that drafts is not lost, it only takes longer. Where drafts are best, an
iteration now and then goes without one.

Costs are measured as the loop runs. This changes the shape of steps with the clock, so that in low precision a near-tie
may flip against a fixed block: exact only where kernels do not depend on shapes. Knows no table and reads no clock: who
is asked what when is :mod:`longstride.verification.pacing`'s.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from longstride.verification.fates import Fates
from longstride.verification.stragglers import Stragglers

MEMORY = 0.995
"""What one draft of a row leaves of what was known of drafts."""
TRIALS = 3
"""Times that an iteration is measured before it is judged, and the last measurements that count, of which the least."""
PROBES = 3
"""Iterations that draft at the beginning of a batch to see what comes of it: heads have nothing to propose in the
first, which is not timed either, since it may wait for sentences to be encoded."""
MARGIN = 0.02
"""Part by which drafts must be better than none, and"""
MORE_MARGIN = 0.04
"""how much that grows each time that they turn out not to be, up to"""
MOST_MARGIN = 0.2
RARELY = 4
"""Every so many batches it is looked at how drafts fare, where they pay."""
SHARE = 0.01
"""Part of the time that drafts may lose which are made to see what comes of them."""
ENOUGH = 64
"""Drafts of rows after which it is known how they fare; before, better is hoped."""
FIRST_PAUSE = 16
"""Iterations that were looked at before one goes without a draft, where drafts pay; twice as many each time, up to"""
LONGEST_PAUSE = 256
NEXT_TO_NOTHING = 1e-12
"""Seconds."""


class Pace:
    """Whether drafts pay, for tables of one number of rows. It begins with drafts."""

    def __init__(self, most: int, fates: Fates, block: int | None = None, rows: int = 1) -> None:
        """`block`: what to begin with for those who only follow, where something is known of it."""
        self.block = most if block is None else block
        """tokens to draft, as far as is known: `most` or 0"""
        self._most = most
        self._fates, self._stragglers = fates, Stragglers(rows)
        self._times = {size: deque[float](maxlen=TRIALS) for size in (most, 0)}
        self._margin = MARGIN
        self._drafts = 0  # of rows, up to enough
        self._saved = 0.0  # seconds that may be lost
        self._looks = True  # at how drafts fare at the beginning of this batch
        self._batches = 0
        self._pause, self._since = FIRST_PAUSE, 0  # iterations before the next without a draft, and since the last

    @property
    def explored(self) -> bool:
        """Whether both were measured."""
        return all(len(times) == TRIALS for times in self._times.values())

    def begin(self) -> None:
        """A batch of new sentences alone."""
        self._batches += 1
        if not self.explored:
            return
        if self.block:
            self._looks = self._batches % RARELY == 0
            return
        lost = PROBES * max(0.0, self._seconds(self._most) - self._tokens(self._most) * self._seconds(0))
        self._looks = lost <= self._saved
        if self._looks:
            self._saved -= lost
            self._stragglers.hope()

    def next(self, iteration: int) -> tuple[int, bool]:
        """For an iteration of a batch, counted from 1: tokens to draft, and whether what comes of it is to be told; if
        not, all that come after it in this batch are alike."""
        if not self.explored:
            return next(size for size, times in self._times.items() if len(times) < TRIALS), True
        if self._looks and iteration <= PROBES:
            return self._most, True
        if self._looks and self.block and self._since >= self._pause:
            return 0, True
        return self.block, False

    def observe(self, block: int, stood: Sequence[int], seconds: float | None) -> None:
        """What became of an iteration: how many tokens stood in each row that took part; how long it took, if known."""
        if block:
            self._fates.add(block, stood)
            self._drafts = min(self._drafts + len(stood), ENOUGH)
        self._since += 1
        if seconds is None:
            return
        self._saved += SHARE * seconds
        self._times[block].append(seconds)
        if block == 0:
            self._pause, self._since = min(2 * self._pause, LONGEST_PAUSE), 0
        self._judge()

    def passed(self, block: int, iterations: int) -> None:
        """There were so many iterations of which nothing else was told."""
        if self._times[block]:
            self._saved += SHARE * iterations * self._seconds(block)

    def waited(self, block: int, brought: float) -> None:
        """A whole batch drafted so many tokens throughout, and an iteration brought this many of its longest output."""
        if block:
            self._stragglers.observe(brought, self._fates.tokens(block))
            self._judge()

    def _judge(self) -> None:
        if not self.explored:
            return
        without = 1 / self._seconds(0)
        if self.block and self._hoped / self._seconds(self._most) < without:
            self.block, self._margin = 0, min(self._margin + MORE_MARGIN, MOST_MARGIN)
        elif not self.block and self._tokens(self._most) / self._seconds(self._most) > (1 + self._margin) * without:
            self.block, self._pause, self._since = self._most, FIRST_PAUSE, 0

    def _tokens(self, block: int) -> float:
        """That an iteration brings, stragglers counted."""
        return self._stragglers.tokens(self._fates.tokens(block))

    @property
    def _hoped(self) -> float:
        """What an iteration with a draft may bring: by what few drafts brought, the mean may well be off."""
        tokens = self._tokens(self._most)
        if self._drafts >= ENOUGH:
            return tokens
        deviation = min(self._most / 2, math.sqrt((tokens - 1) * tokens))  # as if each stood with the same chance
        return min(1.0 + self._most, tokens + deviation / math.sqrt(self._drafts + 1))

    def _seconds(self, block: int) -> float:
        """Of an iteration that was measured."""
        return max(min(self._times[block]), NEXT_TO_NOTHING)
