"""From an aligned corpus to tables: what is counted, what is cut off, and what unseen keys fall back on.

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
import torch

from longstride.contract import SpecialIds
from longstride.search.lengths import LengthRegression
from longstride.systems.lattice.candidates import not_words
from longstride.systems.lattice.tables import NO_SOURCE, CountOptions, Tables, TablesOptions
from longstride.text.binarized import BinarizedCorpus

Integers = npt.NDArray[np.int64]

CHUNK = 50_000
"""Pairs counted at a time."""


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
    special: SpecialIds
    """of both vocabularies"""


class Tally:
    """How often each key occurred; keys are merged whenever as many have come in as there already are."""

    def __init__(self) -> None:
        self._keys: list[Integers] = [np.zeros(0, np.int64)]
        self._counts: list[Integers] = [np.zeros(0, np.int64)]
        self._waiting = self._merged = 0

    def add(self, keys: Integers, counts: Integers | None = None) -> None:
        """Count each of these keys so many times, or once; a key may come twice."""
        if counts is None:
            keys, counts = np.unique(keys, return_counts=True)
        self._keys.append(keys)
        self._counts.append(counts.astype(np.int64))
        self._waiting += len(keys)
        if self._waiting > self._merged:
            self.result()

    def result(self) -> tuple[Integers, Integers]:
        """Distinct keys in order and their counts."""
        if self._waiting:
            keys, counts = np.concatenate(self._keys), np.concatenate(self._counts)
            order = np.argsort(keys, kind="stable")
            keys, counts = keys[order], counts[order]
            first = _run_starts(keys)
            self._keys, self._counts = [keys[first]], [np.add.reduceat(counts, first)]
            self._merged, self._waiting = len(first), 0
        return self._keys[0], self._counts[0]


def _run_starts(ordered: Integers) -> Integers:
    """Where runs of equal values begin."""
    return np.flatnonzero(np.concatenate([np.ones(min(len(ordered), 1), bool), ordered[1:] != ordered[:-1]]))


def _drift_slots(
    a: Integers, t: Integers, words: Integers, length: LengthRegression, options: CountOptions
) -> Integers:
    """The slot of `drift` for target word t from the a-th of so many source words (-1: from none).

    Its distance is that from where t ought to come from if order were kept and length as predicted.
    """
    predicted = np.maximum(words * length.slope + length.intercept, 1.0)
    expected = np.floor((t + 0.5) * words / predicted).astype(np.int64)
    slot = np.clip(a - expected, -options.reach, options.reach) + options.reach + 1
    return np.where(a >= 0, slot, NO_SOURCE)


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
    drift, special = np.zeros(options.slots, np.int64), corpus.source.special
    for first in range(0, len(corpus), CHUNK):
        last = min(first + CHUNK, len(corpus))
        own = target_words[first:last]
        # Per target word: its pair, its position, where it comes from, the two words.
        pair = np.repeat(np.arange(first, last), own)
        t = np.arange(len(pair)) - np.repeat(starts[first:last] - starts[first], own)
        a = links[starts[first] : starts[last]].astype(np.int64)
        y = corpus.target.ids[corpus.target.offsets[pair] + t].astype(np.int64)
        linked = a >= 0
        x = np.where(linked, corpus.source.ids[corpus.source.offsets[pair] + np.maximum(a, 0)], special.pad)
        x = x.astype(np.int64)
        slot = np.where(linked, np.clip(a - t, -options.reach, options.reach) + options.reach + 1, 0)
        tally.add((x * options.slots + slot) * vocabulary + y)
        size = source_words[pair]
        inside = (size <= longest[0]) & (t < longest[1])
        places.add(((size * shape[1] + t) * shape[2] + a + 1)[inside])
        drift += np.bincount(_drift_slots(a, t, size, length, options), minlength=options.slots)
        progress(last, len(corpus))
    dense = np.zeros(shape, np.int32)
    cells, occurred = places.result()
    dense.reshape(-1)[cells] = occurred
    # The counts of any distance go beside those by distance, into slot 0.
    keys, counts = tally.result()
    x, y, slot = keys // vocabulary // options.slots, keys % vocabulary, keys // vocabulary % options.slots
    tally.add((x * options.slots * vocabulary + y)[slot > 0], counts[slot > 0])
    return Counts(tally.result(), dense, drift, length, vocabulary, source_vocabulary, special)


def tables_of(
    counts: Counts, options: CountOptions, tokenizer_sha256: str, source_tokenizer_sha256: str | None = None
) -> Tables:
    """Cut each key to its most frequent words, settle what unseen keys fall back on, and lay everything out.

    Unseen keys, and those seen too seldom, point at the row of the same source word for any distance. A source word
    never seen stands for itself where both sides share a vocabulary, and for nothing elsewhere.
    """
    keys, occurred = counts.links
    if source_tokenizer_sha256 in (None, tokenizer_sha256):
        keys, occurred = _standing_for_themselves(keys, occurred, counts, options.slots)
    rows = counts.source_vocabulary * options.slots
    row = keys // counts.vocabulary
    total = np.bincount(row, occurred, rows).astype(np.int64)
    any_distance = np.arange(rows) // options.slots * options.slots
    own = np.where(total >= options.least, np.arange(rows), any_distance)
    kept = _most_frequent(row, occurred, options.keep, options.fewest)
    kept = kept[(own == np.arange(rows))[row[kept]]]
    size = np.bincount(row[kept], minlength=rows)
    first = np.cumsum(size) - size
    made = Tables(
        TablesOptions(
            counts.vocabulary,
            counts.source_vocabulary,
            tokenizer_sha256,
            source_tokenizer_sha256 or tokenizer_sha256,
            len(kept),
            counts.places.shape[0] - 1,
            counts.places.shape[1],
            options,
            counts.length,
            counts.special,
        )
    )
    arrays = {
        "first": first[own],
        "size": size[own],
        "total": total[own],
        "words": np.pad(keys[kept] % counts.vocabulary, (0, options.keep)),
        "counts": np.pad(occurred[kept], (0, options.keep)),
        "places": _filled_places(counts, options),
        "drift": counts.drift,
    }
    for name, values in arrays.items():
        buffer = made.get_buffer(name)
        buffer.copy_(torch.from_numpy(np.ascontiguousarray(values)).to(buffer.dtype))
    return made


def _most_frequent(row: Integers, occurred: Integers, keep: int, fewest: int) -> Integers:
    """Which entries to keep: the most frequent of each row, lower ids first among equals. Entries come in order.

    The first of a row is kept in any case, others where they occurred `fewest` times or more.
    """
    most = int(occurred.max(initial=0))
    order = np.argsort(row * (most + 1) + (most - occurred), kind="stable")
    starts = _run_starts(row[order])
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    kept: Integers = order[(rank < keep) & ((rank == 0) | (occurred[order] >= fewest))]
    return kept


def _standing_for_themselves(
    keys: Integers, occurred: Integers, counts: Counts, slots: int
) -> tuple[Integers, Integers]:
    seen = np.bincount(keys // counts.vocabulary // slots, minlength=counts.source_vocabulary) > 0
    seen[[id for id in (*not_words(counts.special), counts.special.unk) if id is not None and id < len(seen)]] = True
    unseen = np.flatnonzero(~seen)
    keys = np.concatenate([keys, unseen * slots * counts.vocabulary + unseen])
    order = np.argsort(keys, kind="stable")
    return keys[order], np.concatenate([occurred, np.ones(len(unseen), np.int64)])[order]


def _filled_places(counts: Counts, options: CountOptions) -> npt.NDArray[np.int32]:
    """Counts by S and t, those seen too seldom replaced by the counts of all lengths together."""
    places = counts.places.copy()
    _, columns, width = places.shape
    a, t = np.arange(width), np.arange(columns)[:, None]
    for words in range(len(places)):
        slot = _drift_slots(a - 1, t, np.asarray(words), counts.length, options)
        seldom = places[words].sum(1) < options.least
        places[words][seldom] = np.where(a <= words, counts.drift[slot], 0)[seldom]
    return places
