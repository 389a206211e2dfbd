"""Quality by source length: the test set sorted by length and cut into bins of equally many sentences (Figure 3).

Sentences of one length keep their order, and where bins cannot all be of one size, the first ones are larger by one.
Lengths are in tokens of the model, so that bins are the same for all models with one tokenizer, and for speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from longstride.contract import OptionError
from longstride.tasks.score import Metric, Score


@dataclass(frozen=True)
class LengthBin:
    """The outputs for sources of about one length."""

    shortest: int
    longest: int
    """source tokens, EOS not counted"""
    sentences: int
    scores: tuple[Score, ...]


def length_bins(lengths: Sequence[int], bins: int) -> list[list[int]]:
    """The places of sentences, bin by bin, from short to long."""
    if not 1 <= bins <= len(lengths):
        raise OptionError(f"Bins by length expect 1 to {len(lengths)} of them, one per sentence, found {bins}.")
    order = np.argsort(np.asarray(lengths), kind="stable")
    return [part.tolist() for part in np.array_split(order, bins)]


def score_by_length(
    lengths: Sequence[int],
    bins: int,
    outputs: Sequence[str],
    references: Sequence[str],
    metrics_of: Callable[[Sequence[int]], Sequence[Metric]],
) -> tuple[LengthBin, ...]:
    """Score each bin alone; `metrics_of` gives the metrics for the sentences at these places."""
    found = []
    for places in length_bins(lengths, bins):
        mine, wanted = ([lines[place] for place in places] for lines in (outputs, references))
        scores = tuple(metric.score(mine, wanted) for metric in metrics_of(places))
        found.append(LengthBin(lengths[places[0]], lengths[places[-1]], len(places), scores))
    return tuple(found)
