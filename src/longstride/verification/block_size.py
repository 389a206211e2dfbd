"""How long the next draft should be: as long as pays, by what steps cost here and how drafts have fared.

A long block costs on a CPU and in a large batch; a short one wastes calls where drafts are good; and where drafts are
bad or steps dear, none at all is best, which is greedy search. So what is chosen is the block whose expected tokens per
second are most, among few sizes, the empty one included.

Costs are measured as the loop runs. This changes the shape of steps with the clock, so that in low precision a near-tie
may flip against a fixed block: exact only where kernels do not depend on shapes.
"""

from __future__ import annotations

from collections.abc import Sequence

FORGETTING = 0.9
"""What an iteration leaves of what was known of drafts."""
AGEING = 1.02
"""A cost is the least that was seen, made so much more doubtful with every time that took longer."""
FIRST_PAUSE = 4
"""Iterations without a draft before one is tried again; twice as many after each that does not pay."""
LONGEST_PAUSE = 64


def sizes(most: int) -> list[int]:
    """0, the powers of two, and `most`: where each is compiled or captured by itself, there had better be few."""
    powers = [1 << place for place in range(most.bit_length()) if 1 << place < most]
    return sorted({0, *powers, most})


class Pace:
    """The block of one table's next iteration. It begins with the longest."""

    def __init__(self, most: int) -> None:
        self.block = most
        """tokens to draft"""
        self._sizes = sizes(most)
        self._cost: dict[int, float] = {}
        self._stood, self._fell = 1.0, 0.0
        self._idle = 0
        self._pause = FIRST_PAUSE

    def observe(self, accepted: Sequence[int], drafted: Sequence[int], seconds: float | None) -> None:
        """What became of an iteration: per row, of how many tokens how many stood; and how long it took, if known."""
        block = self.block
        if seconds is not None:
            self._cost[block] = min(self._cost.get(block, seconds) * AGEING, seconds)
        rows = [(stood, meant) for stood, meant in zip(accepted, drafted, strict=True) if meant]
        if rows:
            share = 1 / len(rows)
            self._stood = FORGETTING * self._stood + share * sum(stood for stood, _ in rows)
            self._fell = FORGETTING * self._fell + share * sum(stood < meant for stood, meant in rows)
        self.block = self._next(block)

    def _next(self, block: int) -> int:
        if block not in self._cost:
            return block
        best = max(self._sizes, key=self.tokens_per_second)
        if best > 0:
            self._idle, self._pause = 0, FIRST_PAUSE
            return best
        self._idle += 1
        if self._idle <= self._pause:
            return 0
        self._idle, self._pause = 0, min(2 * self._pause, LONGEST_PAUSE)
        return self._sizes[1] if len(self._sizes) > 1 else 0

    def tokens_per_second(self, block: int) -> float:
        """Expected, with a draft of so many tokens of which each stands as likely as any has of late."""
        chance = self._stood / (self._stood + self._fell)
        tokens = block + 1 if chance == 1 else (1 - chance ** (block + 1)) / (1 - chance)
        return tokens / self._expected(block)

    def _expected(self, block: int) -> float:
        """Seconds of an iteration; of one that was never tried, the least that it could be."""
        if block in self._cost:
            return self._cost[block]
        wider = [size for size in self._cost if size > block]
        if wider:
            nearest = min(wider)
            return self._cost[nearest] * (1 + block) / (1 + nearest)
        return max(self._cost.values())
