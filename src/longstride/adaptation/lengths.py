"""Stage 3: how much to draft on this device, by how many sentences are decoded side by side: it is timed.

A draft that is longer, or a tree of more tokens, finds more and costs more; where none is fastest, that is greedy
search.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from longstride.contract import Source
from longstride.translator import Translator
from longstride.verification.draft_policy import TIMES, TREE, DraftPolicy, best_of, timed

SENTENCES, BATCHES = 24, 2
"""So many sentences are timed, or so many batches where that is more."""

TREES: tuple[int, ...] = (15, 31)
"""Nodes of the trees that are timed: for the fewest rows, and for more while one of them is the fastest. With the
newest token they are a multiple of 16 slots, of which products on a GPU do so many at a time."""

Progress = Callable[[str, int, int], None]
STAGE = "measuring lengths of drafts"


def candidates(block: int, trees: Sequence[int] = ()) -> list[str]:
    """What is timed: no draft, quarters of a block, and trees, as a table has them."""
    chains = sorted({0, *(max(1, block * part // 4) for part in (1, 2, 3, 4))})
    return [*map(str, chains), *(f"{nodes}{TREE}" for nodes in trees)]


def choose(
    translator: Translator,
    sources: Sequence[Sequence[int]],
    rows: Sequence[int],
    progress: Progress,
    sentences: int = SENTENCES,
) -> dict[str, Any]:
    """The lengths to draft, as the decoder's option has them, and the milliseconds per sentence that they were chosen
    by. Batch sizes that there are too few sentences for are left out; where no more than a few `sentences` are to be
    timed, one batch of each is."""
    begun = time.perf_counter()
    block = int(translator.decoder("draft-verify")[0].options.k)  # type: ignore[attr-defined]
    policy, times, trees = DraftPolicy(), {}, TREES
    counts, runs = [count for count in sorted(set(rows)) if count <= len(sources)], 0
    for place, count in enumerate(counts):
        tried = candidates(block, trees)
        of = runs + len(tried) * (1 + TIMES) * (len(counts) - place)
        most = max(SENTENCES, BATCHES * count) if sentences >= SENTENCES else max(sentences, count)
        sample = sorted(sources[:most], key=len)
        # All of one width: every other one would be captured anew, and that is what would be timed.
        longest = max(map(len, sample))
        starts = range(0, len(sample) - count + 1, count)
        batches = [Source.of(sample[first : first + count], longest) for first in starts]

        def run(length: str, batches: list[Source] = batches, count: int = count, of: int = of) -> None:
            nonlocal runs
            progress(STAGE, runs, of)
            runs += 1
            decoder, limits = translator.decoder("draft-verify", lengths=f"{count}:{length}")
            for batch in batches:
                decoder.decode(batch, limits)

        seconds = timed(tried, run)
        best = best_of(seconds)
        policy = policy.with_length(count, int(best.removesuffix(TREE)), best.endswith(TREE))
        # What a tree costs beside a chain grows with the rows: one that loses here need not be tried with more.
        trees = trees if best.endswith(TREE) else ()
        decoded = len(batches) * count
        times[str(count)] = {length: round(1000 * taken / decoded, 3) for length, taken in seconds.items()}
    progress(STAGE, runs, runs)
    return {
        "lengths": str(policy),
        "milliseconds": times,
        "seconds": round(time.perf_counter() - begun, 1),
    }


def without_trees(figures: dict[str, Any]) -> dict[str, Any]:
    """The same choice by the same times among chains alone; where none were timed, as long as there may be."""
    policy = DraftPolicy.from_text(figures["lengths"])
    for rows in policy.trees:
        times = figures["milliseconds"].get(str(rows), {})
        chains = {int(length): taken for length, taken in times.items() if not length.endswith(TREE)}
        policy = policy.with_length(rows, best_of(chains) if chains else policy.length(rows, 10**6))
    return {**figures, "lengths": str(policy)}
