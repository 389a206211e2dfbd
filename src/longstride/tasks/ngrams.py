"""Counts of n-grams: what GLEU and the over-translation score look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def ngrams(words: Sequence[str], order: int) -> list[Counter[tuple[str, ...]]]:
    """How often each n-gram occurs, for n = 1 to `order`."""
    return [
        Counter(tuple(words[place : place + n]) for place in range(len(words) + 1 - n)) for n in range(1, order + 1)
    ]
