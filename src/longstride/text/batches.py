"""Training batches under a token budget, in an order fixed by seed and epoch. Knows no model.

Three things are wanted at once: little padding, batches near the budget (a tiny batch would count as a whole update),
and sources without padding, because attention over equally long sources needs no mask and runs faster. So pairs of
exactly equal source length are laid side by side, sorted by target length, and cut by the budget; what is left over of
each length or would be half padding (in a small corpus: everything) is pooled and cut again across lengths.

Where the cuts fall depends on lengths alone and is computed once: every epoch has the same number of batches of the
same shapes. What an epoch draws anew is which of the equally long pairs stands where, and the order of batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from longstride.contract import Batch, BatchSource, InputError, OptionError, option
from longstride.contract.options import Options
from longstride.text.binarized import BinarizedCorpus

_GOOD_YIELD = 0.8
"""A batch of equally long sources stands when this much of its budget is used and not padding; else it is pooled."""

_Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BatchOptions(Options):
    """How pairs are put together into batches."""

    tokens: int = option(
        32768,
        "Budget of tokens per batch, padding counted, for the target and for the source alike.",
        least=1,
        most=10**9,
    )
    count: Literal["longer", "both"] = option(
        "longer",
        "What the budget bounds: cells of the longer side, or of source and target together, which evens out batches "
        "whose sources are many times as long as their targets.",
    )
    sentences: int | None = option(None, "At most this many pairs per batch; none sets no bound.", least=1, most=10**9)
    shuffle: bool = option(True, "Draw a new order for every epoch; false keeps one order.")
    seed: int = option(1, "Seed of the order.", least=0, most=2**32 - 1)
    source_pure: bool = option(True, "Put pairs of equal source length together, so that sources need no padding.")


@dataclass(frozen=True)
class Waste:
    """What an epoch's batches look like as a whole."""

    batches: int
    source_padding: float
    """share of all source cells that are padding"""
    target_padding: float
    """share of all target cells that are padding"""
    fill: float
    """mean share of the token budget that a batch uses (on its larger side, unless both count), padding counted"""
    pure: float
    """share of batches whose sources are all equally long"""

    @property
    def sentence(self) -> str:
        """The figures in words."""
        return (
            f"{self.batches:,} batches, on average {self.fill:.0%} of the budget; padding {self.source_padding:.1%} of "
            f"source and {self.target_padding:.1%} of target cells; {self.pure:.0%} without source padding"
        )


class TokenBatches(BatchSource):
    """Batches of a corpus. Nothing is ever dropped."""

    def __init__(self, corpus: BinarizedCorpus, options: BatchOptions | None = None) -> None:
        """Lay out the batches of `corpus`; refuses one with a sentence longer than the budget."""
        options = options or BatchOptions()
        if len(corpus) == 0:
            raise InputError("Expected a corpus with at least one pair, found an empty one.")
        self._corpus, self._options = corpus, options
        source, target = corpus.source.lengths, corpus.target.lengths
        longest = int(_size(source, target, options).max())
        if longest > options.tokens:
            raise OptionError(
                f"tokens expects at least {longest}, the longest sentence of the corpus, found {options.tokens}."
            )
        self._shape = source * (int(target.max()) + 1) + target
        """[pairs] one number per (source length, target length), in the order of both"""
        by_shape = np.argsort(self._shape, kind="stable")
        self._layout, self._starts = _lay_out(source[by_shape], target[by_shape], options)

    def batches_in(self, number: int) -> int:
        """How many batches an epoch has; it is the same for all."""
        return len(self._starts) - 1

    def epoch(self, number: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, leaving out the first `skip` without building them."""
        order, members = self._drawn(number)
        for batch in order[skip:]:
            yield self._build(members[self._starts[batch] : self._starts[batch + 1]])

    def waste(self) -> Waste:
        """Padding and fill over all batches of an epoch."""
        members = self._drawn(0)[1]
        source, target = self._corpus.source.lengths[members], self._corpus.target.lengths[members]
        rows = np.diff(self._starts)
        widest_source = np.maximum.reduceat(source, self._starts[:-1])
        widest_target = np.maximum.reduceat(target, self._starts[:-1])
        source_cells, target_cells = rows * widest_source, rows * widest_target
        return Waste(
            len(rows),
            1 - float(source.sum() / source_cells.sum()),
            1 - float(target.sum() / target_cells.sum()),
            float(_size(source_cells, target_cells, self._options).mean()) / self._options.tokens,
            float((widest_source == np.minimum.reduceat(source, self._starts[:-1])).mean()),
        )

    def _drawn(self, number: int) -> tuple[_Indices, _Indices]:
        """The order of the batches [batches] and the pairs that stand in them, batch after batch [pairs]."""
        pairs, batches = len(self._corpus), len(self._starts) - 1
        if not self._options.shuffle:
            return np.arange(batches), np.argsort(self._shape, kind="stable")[self._layout]
        rng = np.random.default_rng([self._options.seed, number])
        drawn = rng.permutation(pairs)
        # A stable sort of a random order: equally long pairs change places, lengths stay where the layout wants them.
        by_shape = drawn[np.argsort(self._shape[drawn], kind="stable")]
        return rng.permutation(batches), by_shape[self._layout]

    def _build(self, pairs: _Indices) -> Batch:
        source, source_lengths = self._corpus.source.padded(pairs)
        target, target_lengths = self._corpus.target.padded(pairs)
        return Batch(*(torch.from_numpy(array) for array in (source, target, source_lengths, target_lengths, pairs)))


def _lay_out(source: _Indices, target: _Indices, options: BatchOptions) -> tuple[_Indices, _Indices]:
    """Put pairs, given by their lengths sorted from short to long (by source, then target), into batches.

    Returns the places in that sorted order, batch after batch [pairs], and where each batch begins [batches + 1].
    """
    everything = np.arange(len(source))
    batches: list[_Indices] = []
    pool: list[_Indices] = [] if options.source_pure else [everything]
    if options.source_pure:
        for group in np.split(everything, np.flatnonzero(np.diff(source)) + 1):
            # From short to long targets: what is left over, or spread too wide, is then the few much longer ones.
            for part in np.split(group, _cut(source[group], target[group], options)):
                good = _yield(source[part], target[part], options) >= _GOOD_YIELD
                (batches if good else pool).append(part)
    if pool:
        rest = np.concatenate(pool)
        longer, shorter = np.maximum(source[rest], target[rest]), np.minimum(source[rest], target[rest])
        rest = rest[np.lexsort((shorter, longer))]
        batches += _evened(np.split(rest, _cut(source[rest], target[rest], options)), source, target, options)
    starts = np.cumsum([0, *map(len, batches)])
    return np.concatenate(batches), starts.astype(np.int64)


def _size(source: _Indices, target: _Indices, options: BatchOptions) -> _Indices:
    """[...] what lengths or cells of both sides take of the budget"""
    return np.maximum(source, target) if options.count == "longer" else source + target


def _yield(source: _Indices, target: _Indices, options: BatchOptions) -> float:
    """How much of its budget a batch uses, times how much of that is not padding."""
    rows, widest_source, widest_target = len(source), source.max(), target.max()
    taken = rows * int(_size(widest_source, widest_target, options))
    full = max(taken / options.tokens, rows / (options.sentences or np.inf))
    return full * float(source.sum() + target.sum()) / (rows * float(widest_source + widest_target))


def _cut(source: _Indices, target: _Indices, options: BatchOptions) -> _Indices:
    """Where to cut a row of pairs, each batch taking as many as its budget allows."""
    length = _size(source, target, options)
    cuts: list[int] = []
    begin = 0
    while True:
        # The first pair bounds how many can follow, so that only so many are looked at.
        window = min(options.tokens // int(length[begin]), options.sentences or len(length), len(length) - begin)
        here = slice(begin, begin + window)
        wide_source, wide_target = (np.maximum.accumulate(side[here]) for side in (source, target))
        cells = _size(wide_source, wide_target, options) * np.arange(1, window + 1)
        begin += int(np.searchsorted(cells, options.tokens, side="right"))
        if begin >= len(length):
            return np.array(cuts, dtype=np.int64)
        cuts.append(begin)


def _evened(parts: list[_Indices], source: _Indices, target: _Indices, options: BatchOptions) -> list[_Indices]:
    """When the last batch is small, move pairs into it from the one before, until both are alike or the budget ends."""
    if len(parts) < 2 or len(parts[-1]) >= len(parts[-2]) // 2:
        return parts
    both = np.concatenate(parts[-2:])
    longest = int(_size(source[both].max(), target[both].max(), options))
    last = min(len(both) // 2, options.tokens // longest)
    return [*parts[:-2], both[:-last], both[-last:]]
