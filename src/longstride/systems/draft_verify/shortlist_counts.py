"""Counting a shortlist: which words stand for which words of the sources, in aligned pairs of sources and outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from longstride.contract import SpecialIds
from longstride.systems.draft_verify.shortlist import Shortlist, ShortlistOptions
from longstride.text.binarized import BinarizedCorpus
from longstride.text.fast_align import Words, align
from longstride.text.tokenizer import Tokenizer

Integers = npt.NDArray[np.integer[Any]]

PAIRS = 1_000_000
"""Pairs that are counted at most, taken evenly."""
KINDS = 16_384
"""Different ids of a side that are told apart, the most frequent: aligning holds two matrices of them, 2 GiB at most"""


def count(
    pairs: BinarizedCorpus,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    each: int,
    special: SpecialIds,
    *,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Shortlist:
    """Align pairs of ids of these tokenizers and count them.

    Where an id means the same on both sides, each is among those listed for it: names are copied.
    """
    options = ShortlistOptions(target_tokenizer.size, source_tokenizer.size, each, special=special)
    made, eos = Shortlist(options), special.eos
    taken = np.flatnonzero((pairs.source.lengths > 1) & (pairs.target.lengths > 1))  # words on both sides
    if not len(taken):
        return made
    if len(taken) > PAIRS:
        taken = taken[np.arange(PAIRS) * len(taken) // PAIRS]
    sides = (Words.of(side.take(taken)) for side in (pairs.source, pairs.target))
    source, target = (Words(_frequent(side.ids, eos), side.offsets) for side in sides)
    links = align(source, target, device=device, progress=progress).links
    first = np.repeat(source.offsets[:-1], np.diff(target.offsets))
    x, y = source.ids[np.where(links >= 0, first + links, 0)], target.ids
    known = (links >= 0) & (x != eos) & (y != eos)
    _fill(made.words.numpy(), x[known], y[known], options.vocabulary)
    if source_tokenizer.sha256 == target_tokenizer.sha256:
        _list_itself(made.words.numpy(), eos)
    ranked = np.bincount(target.ids, minlength=options.vocabulary).argsort(kind="stable")[::-1]
    made.usual.numpy()[: len(ranked)] = ranked[: options.usual]
    return made


def _frequent(ids: Integers, eos: int) -> Integers:
    """The same with EOS, which is no word, for those that are too seldom to be told apart"""
    kinds, counts = np.unique(ids, return_counts=True)
    if len(kinds) <= KINDS:
        return ids
    seldom = kinds[counts.argsort(kind="stable")[:-KINDS]]
    return np.where(np.isin(ids, seldom), eos, ids)


def _fill(words: Integers, x: Integers, y: Integers, vocabulary: int) -> None:
    """Write the y that stood for each x, the most frequent first, into its row of words [source ids, each]"""
    keys, counts = np.unique(x.astype(np.int64) * vocabulary + y, return_counts=True)
    keys = keys[np.lexsort((keys, -counts, keys // vocabulary))]
    x, y = keys // vocabulary, keys % vocabulary
    _, starts, lengths = np.unique(x, return_index=True, return_counts=True)
    rank = np.arange(len(keys)) - np.repeat(starts, lengths)
    kept = rank < words.shape[1]
    words[x[kept], rank[kept]] = y[kept]


def _list_itself(words: Integers, eos: int) -> None:
    """Put each id behind what is in its row, where there is room"""
    own, taken = np.arange(len(words)), (words != eos).sum(1)
    absent = np.flatnonzero((words != own[:, None]).all(1) & (taken < words.shape[1]))
    words[absent, taken[absent]] = own[absent]
