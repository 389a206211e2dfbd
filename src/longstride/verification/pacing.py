"""Whether to draft where each way is a recording: batch by batch, whichever takes less time.

A draft costs in a large batch and saves calls in a small one; where drafts are bad or steps dear none is best, which is
greedy search. A batch is one or the other from its first sentence to its last, and then is what a decoder that always
drafts does, or greedy search itself: nothing is asked before an iteration, nothing is encoded for a drafter that has
nothing to say, and a batch's time holds all there is to compare, its slowest sentence included. Where any size may be
had at any time, it is :mod:`longstride.verification.thrift` that chooses.

What greedy search would have taken for the same outputs is known from its own batches: what comes before an iteration,
and as many iterations as the longest output has tokens; where sentences take the places of others, as many as it takes
for all. A batch with drafts is measured by that. The way that seems worse is tried again, since texts change, as rarely
as keeps what that loses a small share of the time, and at once again as long as it goes well.

This makes the shape of steps depend on the clock, so that in low precision a near-tie may flip against a fixed block:
exact only where kernels do not depend on shapes. Knows no table and no slots.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from time import perf_counter as clock

TRIALS = 2
"""Batches of each way before they are judged; of these with drafts, the better one counts: texts vary."""
REMEMBERED = 3
"""Greedy batches of which the least counts: others may have waited for something else."""
WEIGHT = 0.25
"""Of the newest batch with drafts, among those before it; less for few rows, which say less:"""
MANY = 9
OUTLIER = 2.0
"""A batch counts for no more than so many times the ratio that was expected: it may have waited for something else."""
SHARE = 0.005
"""Part of the time that may be lost by trying what seems worse."""
SOONEST, LATEST = 8, 256
"""Batches between two such trials."""
MOST_SHAPES = 64
NEXT_TO_NOTHING = 1e-12
"""Seconds."""


class Pace:
    """What is known of batches of one number of rows."""

    def __init__(self, rows: int = 1) -> None:
        self.ratio = math.inf
        """time with drafts, where greedy search takes 1"""
        self._weight = WEIGHT / max(1, MANY - rows)
        self._greedy: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)  # seconds before iterations, and of each
        self._drafted = 0  # batches
        self._since = 0  # batches since the last trial
        self._tries = False

    def choose(self) -> bool:
        """Whether the next batch is to draft."""
        if len(self._greedy) < TRIALS or self._drafted < TRIALS:
            return self._drafted < len(self._greedy)
        best = self.ratio < 1
        self._since += 1
        lost = (1 / self.ratio if best else self.ratio) - 1
        self._tries = self._since >= min(LATEST, max(SOONEST, lost / SHARE))
        return best != self._tries

    def observe(self, drafts: bool, tokens: float, first: float, seconds: float) -> None:
        """A batch for whose outputs greedy search takes `tokens` iterations is done: what it took until its first
        iteration was seen to be done, and in all."""
        if drafts and self._greedy:
            self._compare(seconds / self._expected(tokens))
        elif not drafts:
            each = (seconds - first) / (tokens - 1) if tokens > 1 else first
            self._greedy.append((max(0.0, first - each), each))
            self._since = 0 if self._tries else self._since
        self._tries = False

    def _expected(self, tokens: float) -> float:
        """Seconds that greedy search takes for outputs like these."""
        before, each = min(one for one, _ in self._greedy), min(one for _, one in self._greedy)
        return max(before + tokens * each, NEXT_TO_NOTHING)

    def _compare(self, ratio: float) -> None:
        self._drafted += 1
        if self._drafted <= TRIALS:
            self.ratio = min(self.ratio, ratio)
        else:
            self.ratio += max(1 / self._drafted, self._weight) * (min(ratio, OUTLIER * self.ratio) - self.ratio)
        if self._tries and ratio >= 1:
            self._since = 0


class Watch:
    """The clock beside the batches of one session."""

    def __init__(self, pace: Pace, drafts: bool, rows: int) -> None:
        self._pace, self._drafts, self._rows = pace, drafts, rows
        self._begun = self._first = 0.0
        self._tokens = self._longest = 0

    def begin(self) -> None:
        """Sentences are about to come into an empty table."""
        self._begun = clock()
        self._tokens = self._longest = 0

    def look(self) -> None:
        """The first iteration after that was seen to be done."""
        self._first = clock() - self._begun

    def finish(self, lengths: Sequence[int], last: bool) -> None:
        """Sentences are done, whose outputs have so many tokens, the end counted; whether there are no others."""
        self._tokens += sum(lengths)
        self._longest = max(self._longest, *lengths)
        if last:
            needed = max(self._longest, self._tokens / self._rows)
            self._pace.observe(self._drafts, needed, self._first, clock() - self._begun)


class Paces:
    """What the sessions of one decoder have found out, by numbers of rows. It outlives sessions."""

    def __init__(self) -> None:
        self._known: dict[int, Pace] = {}

    def of(self, rows: int) -> Pace:
        """For tables of so many rows."""
        found = self._known.get(rows)
        if found is None:
            if len(self._known) >= MOST_SHAPES:
                self._known.clear()
            found = self._known[rows] = Pace(rows)
        return found
