"""Sentences of one language as ids, one after the other in a flat array. Knows no text and no file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from longstride.contract import DEFAULT_IDS, SpecialIds

Ids = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Side:
    """The sentences of one language, one after the other."""

    ids: Ids
    """[tokens]"""
    offsets: npt.NDArray[np.int64]
    """[sentences + 1]: sentence i is ids[offsets[i]:offsets[i + 1]]"""
    special: SpecialIds = DEFAULT_IDS

    @staticmethod
    def of(sentences: Sequence[Sequence[int]], special: SpecialIds = DEFAULT_IDS) -> Side:
        """Lay sentences end to end, the end-of-sentence id appended to those that lack it."""
        eos = special.eos
        closed = [row if len(row) and row[-1] == eos else [*row, eos] for row in sentences]
        lengths = np.fromiter((len(row) for row in closed), np.int64, len(closed))
        ids = np.fromiter(chain.from_iterable(closed), np.uint32, int(lengths.sum()))
        return Side(ids, offsets_of(lengths), special)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """[sentences], the end-of-sentence id counted."""
        return np.diff(self.offsets)

    def sentence(self, index: int) -> Ids:
        """[length] one sentence, ending in EOS."""
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def padded(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Chosen sentences as a rectangle [rows, longest], padded on the right, and their lengths [rows]."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        columns = np.arange(int(lengths.max(initial=0)))
        inside = columns < lengths[:, None]
        # Where a row has ended its first id is read instead, so that no index leaves the array.
        cells = starts[:, None] + np.where(inside, columns, 0)
        return np.where(inside, self.ids[cells], self.special.pad).astype(np.int64, copy=False), lengths

    def take(self, rows: npt.NDArray[np.int64]) -> Side:
        """Chosen sentences, in the order given."""
        starts = self.offsets[rows]
        offsets = offsets_of(self.offsets[rows + 1] - starts)
        cells = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], np.diff(offsets))
        return Side(self.ids[cells], offsets, self.special)


def offsets_of(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where sentences of these lengths begin when laid end to end, and where the last one ends: [sentences + 1]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
