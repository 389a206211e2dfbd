"""How long the next draft should be, from how recent ones fared: grows where nearly all stands, else shrinks.

A long block costs on a CPU and in a large batch; a short one wastes calls where drafts are good. This changes the shape
of steps, so that in low precision a near-tie may flip against a fixed block: exact only where kernels do not depend on
shapes.
"""

from __future__ import annotations

GROW = 0.7
SHRINK = 0.35
"""Shares of the block that stood, averaged over rows"""


def next_block(block: int, most: int, accepted: float) -> int:
    """The block after one of `block` tokens of which `accepted` stood on average, between 1 and `most`."""
    if accepted >= GROW * block:
        return min(most, block + max(1, block // 2))
    if accepted < SHRINK * block:
        # Twice what stood leaves room to find out whether more would.
        return max(1, min(block - 1, int(2 * accepted) + 1))
    return block


def rung(block: int, most: int) -> int:
    """The next power of two, or `most`: where every size is recorded by itself, there had better be few."""
    return min(most, 1 << max(0, block - 1).bit_length())
