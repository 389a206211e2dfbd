"""FastAlign (Dyer, Chahuneau and Smith, 2013), over all pairs at once: which source word each target word comes from.

    P(a_j = 0)        = null
    P(a_j = i | j, m, n) ∝ (1 - null) · exp(-tension · |i/n - j/m|)        i of n source words, j of m target words
    P(f, a | e)       = Π_j P(a_j | j, m, n) · t(f_j | e_{a_j})

t and the tension are learnt by expectation maximisation, t with a Dirichlet prior. Pairs of equal lengths share one
matrix of alignment probabilities, so they are worked on together, a block of pairs per tensor operation. t is a dense
matrix over the words that occur; two of them are held in memory.

It gives what the program of that name gives, so it keeps two of its oddities, both in how the tension is fitted: the
expected feature counts target words from 0 where the model counts from 1, and its derivative is normalised with the two
lengths swapped. Sentences are words only, no EOS. Knows no file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from longstride.contract import option
from longstride.contract.options import Options
from longstride.text.binarized import Side

Integers = npt.NDArray[np.int64]

UNIFORM = 1e-9
"""t before the first iteration."""
CELLS = 1 << 21
"""Source-target cells worked on at a time: tensors of some ten megabytes."""
_TENSION_STEPS, _TENSION_RATE, _TENSION_RANGE = 8, 20.0, (0.1, 14.0)
"""How FastAlign fits the tension: steps of gradient ascent, their rate, and where it must stay."""


@dataclass(frozen=True)
class AlignerOptions(Options):
    """How alignments are learnt; the defaults are FastAlign's with its options -d -o -v, as its authors advise."""

    iterations: int = option(5, "Passes over the corpus; the last one only aligns.", least=1, most=1000)
    null: float = option(
        0.08, "Probability that a target word comes from no source word; 0 leaves that out.", least=0, below=1
    )
    diagonal: bool = option(True, "Favour alignments near the diagonal.")
    # With more, the exponential of a whole length from the diagonal would be 0, and shares of it no numbers.
    tension: float = option(4.0, "How much nearer the diagonal is favoured, to begin with.", least=0.001, most=700)
    fit_tension: bool = option(True, "Learn the tension.")
    prior: float = option(
        0.01, "Dirichlet prior of the translation probabilities; 0 is plain maximum likelihood.", least=0, most=1000
    )


@dataclass(frozen=True)
class Words:
    """Sentences without EOS, end to end."""

    ids: npt.NDArray[Any]
    """[words] whole numbers of any width"""
    offsets: Integers
    """[sentences + 1]"""

    @staticmethod
    def of(side: Side) -> Words:
        """One side of a corpus, whose sentences end in EOS."""
        keep = np.ones(len(side.ids), bool)
        keep[side.offsets[1:] - 1] = False
        return Words(side.ids[keep], side.offsets - np.arange(len(side.offsets)))


@dataclass(frozen=True)
class Aligned:
    """What the last pass found."""

    links: npt.NDArray[np.int32]
    """[target words] the source word each comes from, from 0 within its sentence; -1 for none"""
    tension: float
    perplexity: float


def memory_needed(source: Words, target: Words) -> int:
    """Bytes of the two matrices that `align` holds, of 32-bit numbers."""
    return 2 * 4 * (len(np.unique(source.ids)) + 1) * len(np.unique(target.ids))


def align(
    source: Words,
    target: Words,
    options: AlignerOptions | None = None,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Aligned:
    """Learn from these pairs and align them; `progress` is told passes·pairs done and their total."""
    options = options or AlignerOptions()
    corpus = _Blocks(source, target, torch.device(device))
    model = _Model(options, corpus, dtype)
    pairs, done = len(source.offsets) - 1, 0
    links = np.full(len(target.ids), -1, np.int32)
    for iteration in range(options.iterations):
        aligning, found = iteration == options.iterations - 1, 0.0
        done = iteration * pairs
        for block in corpus.blocks():
            if aligning:
                chosen, likelihood = model.best(block)
                links[target.offsets[block.pairs][:, None] + np.arange(block.target.shape[1])] = chosen.cpu().numpy()
                found += likelihood
            else:
                found += model.expect(block)
            done += len(block.pairs)
            progress(done, options.iterations * pairs)
        if not aligning:
            model.maximise(found, refit=iteration > 0)
    return Aligned(links, model.tension, math.exp(-found / max(len(target.ids), 1)))


@dataclass(frozen=True)
class _Block:
    """Pairs of equal lengths."""

    pairs: Integers
    """[rows] which pairs these are"""
    source: Tensor
    """[rows, n + 1] rows of t, that of no word first"""
    target: Tensor
    """[rows, m] columns of t"""


class _Blocks:
    """A corpus in blocks of equally long pairs, its words numbered by those that occur."""

    def __init__(self, source: Words, target: Words, device: torch.device) -> None:
        self.device = device
        self._source, self._target = source, target
        rows, self._rows = _numbered(source.ids)
        columns, self._columns = _numbered(target.ids)
        self.shape = (rows + 1, columns)
        self.lengths = np.diff(source.offsets), np.diff(target.offsets)
        self.words = len(target.ids)

    def sizes(self) -> list[tuple[int, int, int]]:
        """Distinct pairs of lengths and how often each occurs: source, target, count; none without words on a side."""
        lengths = np.stack(self.lengths, 1)
        pairs, counts = np.unique(lengths[lengths.all(1)], axis=0, return_counts=True)
        return [(n, m, count) for (n, m), count in zip(pairs.tolist(), counts.tolist(), strict=True)]

    def blocks(self) -> Iterator[_Block]:
        """All pairs with words on both sides, shortest first."""
        source, target = self.lengths
        order = np.lexsort((target, source))
        order = order[(source[order] > 0) & (target[order] > 0)]
        ends = np.flatnonzero(np.diff(source[order]) | np.diff(target[order])) + 1
        for group in np.split(order, ends):
            if not len(group):
                continue
            n, m = int(source[group[0]]), int(target[group[0]])
            rows = max(1, CELLS // ((n + 1) * m))
            for first in range(0, len(group), rows):
                pairs = group[first : first + rows]
                chosen = np.zeros((len(pairs), n + 1), np.int64)
                chosen[:, 1:] = self._rows[self._source.offsets[pairs][:, None] + np.arange(n)] + 1
                columns = self._columns[self._target.offsets[pairs][:, None] + np.arange(m)].astype(np.int64)
                yield _Block(pairs, torch.from_numpy(chosen).to(self.device), torch.from_numpy(columns).to(self.device))


def _numbered(ids: npt.NDArray[Any]) -> tuple[int, npt.NDArray[np.int32]]:
    """How many different ids there are, and each word by the number of its id among them."""
    seen = np.unique(ids)
    numbers = np.zeros(int(seen.max(initial=0)) + 1, np.int32)
    numbers[seen] = np.arange(len(seen))
    return len(seen), numbers[ids]


class _Model:
    """t, the tension, and the counts of the pass under way."""

    def __init__(self, options: AlignerOptions, corpus: _Blocks, dtype: torch.dtype) -> None:
        self._options = options
        self._corpus = corpus
        self._dtype = dtype
        self._least = 1e-30 if dtype == torch.float32 else 1e-300  # a prior near 0 makes t underflow
        self._t: Tensor | None = None
        self._counts = torch.zeros(corpus.shape, dtype=dtype, device=corpus.device)
        self.tension = options.tension

    def expect(self, block: _Block) -> float:
        """Count expected links; the summed feature of them."""
        joint, cells = self._joint(block)
        share = joint / joint.sum(-1, keepdim=True)
        self._counts.view(-1).index_add_(0, cells.view(-1), share.view(-1))
        n, m = block.source.shape[1] - 1, block.target.shape[1]
        feature = _feature(torch.arange(m), m, n).to(share)
        return float((share[..., 1:].sum(0) * feature).sum(dtype=torch.float64))

    def maximise(self, expected: float, refit: bool) -> None:
        """Counts become t, a few source words at a time; the tension is fitted unless this is the first pass."""
        if refit and self._options.diagonal and self._options.fit_tension:
            self.tension = _fitted(self.tension, expected / self._corpus.words, self._corpus)
        prior = self._options.prior
        height = max(1, CELLS // self._counts.shape[1])
        for first in range(0, len(self._counts), height):
            rows = self._counts[first : first + height]
            seen = rows > 0
            totals = rows.sum(1, dtype=torch.float64) + prior * seen.sum(1).double()
            within = seen.nonzero(as_tuple=True)
            counts, total = rows[within].double() + prior, totals[within[0]]
            t = (torch.digamma(counts) - torch.digamma(total)).exp() if prior else counts / total
            rows[within] = t.to(self._dtype).clamp(min=self._least)
        spent, self._t = self._t, self._counts
        self._counts = torch.zeros_like(self._t) if spent is None else spent.zero_()

    def best(self, block: _Block) -> tuple[Tensor, float]:
        """[rows, m] the likeliest source word of each target word, -1 for none; and the log-likelihood."""
        joint, _ = self._joint(block)
        chosen = joint.max(-1).indices - 1
        return chosen, float(joint.sum(-1).double().log().sum())

    def _joint(self, block: _Block) -> tuple[Tensor, Tensor]:
        """P(f_j, a_j | e) [rows, m, n + 1] and where each stands in t, flattened."""
        cells = block.source[:, None, :] * self._corpus.shape[1] + block.target[:, :, None]
        links = self._links(block.target.shape[1], block.source.shape[1] - 1)
        if self._t is None:
            return (links * UNIFORM).expand(cells.shape).contiguous(), cells
        return self._t.view(-1)[cells].mul_(links), cells

    def _links(self, m: int, n: int) -> Tensor:
        """P(a_j | j, m, n) [m, n + 1], that of no source word first."""
        null = self._options.null
        if self._options.diagonal:
            closeness = (_feature(torch.arange(1, m + 1), m, n) * self.tension).exp()
            near = (1 - null) * closeness / closeness.sum(1, keepdim=True)
        else:
            null = 1 / (n + 1) if null else 0.0
            near = torch.full((m, n), 1 / (n + bool(null)), dtype=torch.float64)
        links = torch.cat([torch.full((m, 1), null, dtype=torch.float64), near], 1)
        return links.to(self._corpus.device, self._dtype)


def _feature(j: Tensor, m: int, n: int) -> Tensor:
    """-|i/n - j/m| for i = 1..n: [len(j), n] float64."""
    return -((torch.arange(1, n + 1).double() / n)[None, :] - (j.double() / m)[:, None]).abs()


def _fitted(tension: float, expected: float, corpus: _Blocks) -> float:
    """Some steps of gradient ascent on how well the tension explains the expected feature."""
    sizes = corpus.sizes()
    low, high = _TENSION_RANGE
    for _ in range(_TENSION_STEPS):
        modelled = sum(count * _modelled_feature(m, n, tension) for n, m, count in sizes)
        tension = min(max(tension + (expected - modelled / corpus.words) * _TENSION_RATE, low), high)
    return tension


def _modelled_feature(m: int, n: int, tension: float) -> float:
    """The feature that the model expects of one pair of these lengths, summed over its target words."""
    j = np.arange(1, m + 1, dtype=np.float64)
    feature = -np.abs(np.arange(1, n + 1) / n - j[:, None] / m)
    return float(((feature * np.exp(feature * tension)).sum(1) / _swapped_total(j, m, n, tension)).sum())


def _swapped_total(j: npt.NDArray[np.float64], m: int, n: int, tension: float) -> npt.NDArray[np.float64]:
    """What FastAlign divides by: the closed form of the sum over source words, m and n swapped, j reaching past n.

    Below and above the diagonal the terms are geometric series; past the end the upper one has no end (in FastAlign
    its length, an unsigned number, wraps around).
    """
    floor = np.floor(j * m / n)
    ratio = math.exp(-tension / m)
    above = np.where(floor > m, 1.0, 1 - ratio ** np.maximum(m - floor, 0))
    upper = np.exp(-np.abs((floor + 1) / m - j / n) * tension) * above
    lower = np.exp(-np.abs(floor / m - j / n) * tension) * (1 - ratio**floor)
    return np.asarray((upper + lower) / (1 - ratio), np.float64)
