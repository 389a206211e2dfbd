"""Counting an aligned corpus: how often which target word came from which source word, how far away; and from where.

    P(y | x, o)   y came from the source word x that stands o = a - t places further on      (`Counts.links`)
    P(y | x)      the same wherever x stands; what unseen (x, o) fall back on                (slot 0 of `Counts.links`)
    P(a | S, t)   the t-th of the target words came from the a-th of S source words          (`Counts.places`)

Maximum likelihood without smoothing. All positions count from 0 and words alone: EOS is on neither side and not in S.
Target words that come from no source word are counted as coming from PAD, which no sentence contains, at no distance.
Distances beyond `reach` are taken for `reach`. Memory is that of the distinct keys, not of the corpus.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from longstride.contract import PAD, option
from longstride.contract.options import Options
from longstride.search.lengths import LengthRegression
from longstride.text.binarized import BinarizedCorpus

Integers = npt.NDArray[np.int64]

CHUNK = 50_000
"""Pairs counted at a time."""
NO_SOURCE = 0
"""The place in `Counts.places` and `Counts.drift` of target words that come from no source word."""


@dataclass(frozen=True)
class CountOptions(Options):
    """What is counted, and how much of it is kept."""

    keep: int = option(
        40, "Target words kept for each source word and distance, the most frequent ones.", least=1, most=255
    )
    reach: int = option(
        40, "Distances between target and source position are told apart up to this.", least=0, most=10**4
    )
    longest: int = option(
        128, "Positions are counted by length up to this many words a side, else over all lengths.", least=1, most=10**4
    )
    least: int = option(
        1, "Keys seen less often than this fall back on coarser ones; 1 is the paper's rule.", least=1, most=10**9
    )
    fewest: int = option(
        1,
        "Target words seen less often than this with a key are dropped, its most frequent aside.",
        least=1,
        most=10**9,
    )

    @property
    def slots(self) -> int:
        """Kinds of distance per source word: any (slot 0), then -reach to reach."""
        return 2 * self.reach + 2


@dataclass(frozen=True)
class Counts:
    """All counts, before anything is cut off."""

    links: tuple[Integers, Integers]
    """distinct keys in order, (source word · slots + slot) · vocabulary + target word, and how often each occurred"""
    places: npt.NDArray[np.int32]
    """[S + 1, T, S + 1]: for S source words and target position t, how often it came from none, from 0, 1, ..."""
    drift: Integers
    """[slots] the same for all lengths together: from none, then by the distance from where t ought to come from"""
    length: LengthRegression
    vocabulary: int
    """target ids"""
    source_vocabulary: int


class Tally:
    """How often each key occurred; keys are merged whenever as many have come in as there already are."""

    def __init__(self) -> None:
        self._keys: list[Integers] = [np.zeros(0, np.int64)]
        self._counts: list[Integers] = [np.zeros(0, np.int64)]
        self._waiting = self._merged = 0

    def add(self, keys: Integers) -> None:
        """Count these keys."""
        distinct, counts = np.unique(keys, return_counts=True)
        self.add_counts(distinct, counts.astype(np.int64))

    def add_counts(self, keys: Integers, counts: Integers) -> None:
        """Count each of these keys so many times; a key may come twice."""
        self._keys.append(keys)
        self._counts.append(counts)
        self._waiting += len(keys)
        if self._waiting > self._merged:
            self.result()

    def result(self) -> tuple[Integers, Integers]:
        """Distinct keys in order and their counts."""
        if self._waiting:
            keys, counts = np.concatenate(self._keys), np.concatenate(self._counts)
            order = np.argsort(keys, kind="stable")
            keys, counts = keys[order], counts[order]
            first = run_starts(keys)
            self._keys, self._counts = [keys[first]], [np.add.reduceat(counts, first)]
            self._merged, self._waiting = len(first), 0
        return self._keys[0], self._counts[0]


def run_starts(ordered: Integers) -> Integers:
    """Where runs of equal values begin."""
    return np.flatnonzero(np.concatenate([np.ones(min(len(ordered), 1), bool), ordered[1:] != ordered[:-1]]))


def expected_source(t: Integers, source_words: Integers, length: LengthRegression) -> Integers:
    """Where among S source words the t-th target word ought to come from if order were kept and length as predicted."""
    predicted = np.maximum(source_words * length.slope + length.intercept, 1.0)
    return np.asarray(np.floor((t + 0.5) * source_words / predicted), np.int64)


def count(
    corpus: BinarizedCorpus,
    links: npt.NDArray[np.int32],
    vocabulary: int,
    source_vocabulary: int,
    options: CountOptions,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Counts:
    """Count a corpus whose target words come from `links` [target words], -1 for none; `progress` counts pairs."""
    source_words, target_words = corpus.source.lengths - 1, corpus.target.lengths - 1
    length = LengthRegression.fit(source_words, target_words)
    longest = [min(int(words.max(initial=1)), options.longest) for words in (source_words, target_words)]
    shape = (longest[0] + 1, longest[1], longest[0] + 1)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(target_words)])
    tally, places = Tally(), Tally()
    drift = np.zeros(options.slots, np.int64)
    for first in range(0, len(corpus), CHUNK):
        last = min(first + CHUNK, len(corpus))
        own = target_words[first:last]
        # Per target word: its pair, its position, where it comes from, the two words.
        pair = np.repeat(np.arange(first, last), own)
        t = np.arange(len(pair)) - np.repeat(starts[first:last] - starts[first], own)
        a = links[starts[first] : starts[last]].astype(np.int64)
        y = corpus.target.ids[corpus.target.offsets[pair] + t].astype(np.int64)
        linked = a >= 0
        x = np.where(linked, corpus.source.ids[corpus.source.offsets[pair] + np.maximum(a, 0)], PAD).astype(np.int64)
        slot = np.where(linked, np.clip(a - t, -options.reach, options.reach) + options.reach + 1, 0)
        tally.add((x * options.slots + slot) * vocabulary + y)
        size = source_words[pair]
        inside = (size <= longest[0]) & (t < longest[1])
        places.add(((size * shape[1] + t) * shape[2] + a + 1)[inside])
        away = np.clip(a - expected_source(t, size, length), -options.reach, options.reach) + options.reach + 1
        drift += np.bincount(np.where(linked, away, NO_SOURCE), minlength=options.slots)
        progress(last, len(corpus))
    dense = np.zeros(shape, np.int32)
    cells, occurred = places.result()
    dense.reshape(-1)[cells] = occurred
    return Counts(_with_any_distance(tally, options, vocabulary), dense, drift, length, vocabulary, source_vocabulary)


def _with_any_distance(tally: Tally, options: CountOptions, vocabulary: int) -> tuple[Integers, Integers]:
    """The counts by distance, and those of any distance in slot 0."""
    keys, counts = tally.result()
    x, y, slot = keys // vocabulary // options.slots, keys % vocabulary, keys // vocabulary % options.slots
    tally.add_counts((x * options.slots * vocabulary + y)[slot > 0], counts[slot > 0])
    return tally.result()
