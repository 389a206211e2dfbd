"""How much of what drafts bring a batch keeps: it ends with its slowest sentence, and some are slower than the mean.

A step of a table costs the same for one sentence as for all of them, so that a batch whose drafts bring four tokens an
iteration on the mean takes as many iterations as the one sentence for which they bring two. Greedy search has its
stragglers, too, the long sentences; so what counts is how many iterations it would have taken for the same outputs,
which is the length of the longest. Only batches count whose sentences came in together and drafted throughout, but for
a few iterations: where new ones take the places of those that are done, nobody waits. Knows no clock and no table.
"""

from __future__ import annotations

from collections.abc import Iterable

MEMORY = 0.7
"""What a batch of many rows leaves of what was known before it; one of few leaves more, since it says less."""
MANY = 9
LEAST_LEFT, MOST_LEFT = 0.2, 2.0
HOPE = 0.05
"""Part of the way back to all of it, each time that drafts are looked at where none are made."""


FEW = 4
"""Iterations without a draft that a batch may have had."""


class Batch:
    """The sentences of a table, from when all came in until the last is done."""

    def __init__(self) -> None:
        self._iterations = 0
        self._bare = 0  # of these, without a draft
        self._block = 0
        self._longest = 0
        self._together = False

    def begin(self, all_new: bool) -> None:
        """New sentences come in; whether there are no others."""
        self._together = all_new
        self._iterations, self._bare, self._longest = 0, 0, 0

    def iterate(self, block: int, times: int = 1) -> None:
        """An iteration in which so many tokens were drafted, or several."""
        self._iterations += times
        self._bare += 0 if block else times
        self._block = block or self._block

    def finish(self, lengths: Iterable[int], last: bool) -> tuple[int, float] | None:
        """Sentences are done, whose outputs are so long, the end counted; whether they were the last of the batch.

        -> the block, and how many tokens an iteration brought by the clock, where that can be told
        """
        self._longest = max(self._longest, *lengths)
        drafted = self._iterations - self._bare
        if not (last and self._together and drafted and self._bare <= FEW):
            return None
        self._together = False
        return self._block, (self._longest - self._bare) / drafted


class Stragglers:
    """Of batches of one number of rows: the part of the tokens beyond the first that is left, 1 before any is known.

    More than all of them may be left: what drafts bring is watched at the beginnings of sentences alone.
    """

    def __init__(self, rows: int) -> None:
        self.left = 1.0
        self._known = False
        self._memory = MEMORY ** (1 / max(1, MANY - rows))

    def observe(self, brought: float, mean: float) -> None:
        """A batch kept `brought` tokens an iteration, where drafts bring `mean`."""
        if mean > 1:
            left = min(MOST_LEFT, max(LEAST_LEFT, (brought - 1) / (mean - 1)))
            self.left = self._memory * self.left + (1 - self._memory) * left if self._known else left
            self._known = True

    def hope(self) -> None:
        """It is long ago that this was known."""
        self.left += HOPE * max(0.0, 1 - self.left)

    def tokens(self, mean: float) -> float:
        """What is left of `mean` tokens an iteration."""
        return 1 + (mean - 1) * self.left
