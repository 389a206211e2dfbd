"""Stage 3: how many tokens to draft on this device, by how many sentences are decoded side by side: it is timed.

A draft that is longer finds more tokens and costs more; where none is fastest, that is greedy search.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from longstride.contract import Source
from longstride.translator import Translator
from longstride.verification.draft_policy import DraftPolicy, best_of, timed

SENTENCES, BATCHES = 24, 2
"""So many sentences are timed, or so many batches where that is more."""

Progress = Callable[[str, int, int], None]


def candidates(block: int) -> list[int]:
    """Lengths that are timed: none, and quarters of a block."""
    return sorted({0, *(max(1, block * part // 4) for part in (1, 2, 3, 4))})


def choose(
    translator: Translator, sources: Sequence[Sequence[int]], rows: Sequence[int], progress: Progress
) -> dict[str, Any]:
    """The lengths to draft, as the decoder's option has them, and the milliseconds per sentence that they were chosen
    by. Batch sizes that there are too few sentences for are left out."""
    begun = time.perf_counter()
    block = int(translator.decoder("draft-verify")[0].options.k)  # type: ignore[attr-defined]
    policy, times = DraftPolicy(), {}
    for place, count in enumerate(sorted(set(rows))):
        progress("measuring lengths of drafts", place, len(set(rows)))
        sample = sorted(sources[: max(SENTENCES, BATCHES * count)], key=len)
        if len(sample) < count:
            continue
        # All of one width: every other one would be captured anew, and that is what would be timed.
        longest = max(map(len, sample))
        starts = range(0, len(sample) - count + 1, count)
        batches = [Source.of(sample[first : first + count], longest) for first in starts]

        def run(length: int, batches: list[Source] = batches, count: int = count) -> None:
            decoder, limits = translator.decoder("draft-verify", lengths=DraftPolicy(((count, length),)))
            for batch in batches:
                decoder.decode(batch, limits)

        seconds = timed(candidates(block), run)
        policy = policy.with_length(count, best_of(seconds))
        decoded = len(batches) * count
        times[str(count)] = {str(length): round(1000 * taken / decoded, 3) for length, taken in seconds.items()}
    progress("measuring lengths of drafts", len(set(rows)), len(set(rows)))
    return {
        "lengths": str(policy),
        "milliseconds": times,
        "seconds": round(time.perf_counter() - begun, 1),
    }
