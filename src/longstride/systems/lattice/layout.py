"""From counts to tables: what is cut off, what unseen keys fall back on, and where everything lies.

- Of each (source word, distance) the most frequent target words are kept; probabilities are shares of all occurrences.
- An unseen (source word, distance) points at the source word's row for any distance; so does one seen too seldom, whose
  own row is then dropped.
- A source word never seen stands for itself where both sides share a vocabulary, and for nothing elsewhere.
- The row of an unseen (S, t) holds the counts of all lengths together, by the distance from where t ought to come from.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from longstride.contract import RESERVED
from longstride.systems.lattice.counts import NO_SOURCE, CountOptions, Counts, Integers, expected_source, run_starts
from longstride.systems.lattice.tables import Tables, TablesOptions


def tables_of(
    counts: Counts, options: CountOptions, tokenizer_sha256: str, source_tokenizer_sha256: str | None = None
) -> Tables:
    """Cut each key to its most frequent words, settle what unseen keys fall back on, and lay everything out."""
    one_vocabulary = source_tokenizer_sha256 in (None, tokenizer_sha256)
    keys, occurred = counts.links
    if one_vocabulary:
        keys, occurred = _standing_for_themselves(keys, occurred, counts, options.slots)
    rows = counts.source_vocabulary * options.slots
    row = keys // counts.vocabulary
    total = np.bincount(row, occurred, rows).astype(np.int64)
    # Unseen keys point at the row of the same source word for any distance.
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


def _most_frequent(row: Integers, occurred: Integers, keep: int, fewest: int = 1) -> Integers:
    """Which entries to keep: the most frequent of each row, lower ids first among equals. Entries come in order.

    The first of a row is kept in any case, others where they occurred `fewest` times or more.
    """
    most = int(occurred.max(initial=0))
    order = np.argsort(row * (most + 1) + (most - occurred), kind="stable")
    starts = run_starts(row[order])
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    kept: Integers = order[(rank < keep) & ((rank == 0) | (occurred[order] >= fewest))]
    return kept


def _standing_for_themselves(
    keys: Integers, occurred: Integers, counts: Counts, slots: int
) -> tuple[Integers, Integers]:
    seen = np.bincount(keys // counts.vocabulary // slots, minlength=counts.source_vocabulary) > 0
    unseen = np.flatnonzero(~seen[len(RESERVED) :]) + len(RESERVED)
    keys = np.concatenate([keys, unseen * slots * counts.vocabulary + unseen])
    order = np.argsort(keys, kind="stable")
    return keys[order], np.concatenate([occurred, np.ones(len(unseen), np.int64)])[order]


def _filled_places(counts: Counts, options: CountOptions) -> npt.NDArray[np.int32]:
    """Counts by S and t, those seen too seldom replaced by the counts of all lengths together."""
    places = counts.places.copy()
    _, columns, width = places.shape
    a, t = np.arange(width), np.arange(columns)
    for words in range(len(places)):
        expected = expected_source(t, np.asarray(words), counts.length)
        slot = np.clip(a - 1 - expected[:, None], -options.reach, options.reach) + options.reach + 1
        slot[:, NO_SOURCE] = NO_SOURCE
        seldom = places[words].sum(1) < options.least
        places[words][seldom] = np.where(a <= words, counts.drift[slot], 0)[seldom]
    return places
