"""A drafter's own ids: the verifier's most frequent ones under numbers of its own, the rest under one.

A draft's output projection over 58,000 or 256,000 ids costs more than its layers. A drafter with `kept` ids projects on
these alone. Its first five ids are our reserved ones, whatever the verifier's are, so that all that drafts needs no
other special ids than our own vocabularies have; the fifth and on stand for ids of the verifier. Two tables lie at the
border: `kept_ids` [kept] gives the verifier's id of each own one, `own_ids` [vocabulary] the other way, UNK for what is
not kept. That is never drafted, and the verifier judges as ever: outputs stay the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from longstride.contract import EOS, MASK, PAD, RESERVED, START, UNK, SpecialIds

NEVER_DRAFTED = (PAD, UNK, START, MASK)
"""Own ids that stand for nothing a verifier would say."""

_PORTION = 1 << 24
"""Ids that are counted at once: a corpus may be larger than memory."""


@dataclass(frozen=True)
class KeptIds:
    """Which of a verifier's ids a drafter keeps."""

    ids: Tensor
    """[n] int64, most frequent first, special ones left out: these are kept anyway"""
    coverage: float
    """the share of counted tokens that can be drafted, EOS among them"""

    @property
    def size(self) -> int:
        """The drafter's option `kept`."""
        return len(RESERVED) + len(self.ids)


def reserved_ids(special: SpecialIds) -> list[int]:
    """The verifier's id of each of our reserved ones; where it has none, its pad id, which it never says."""
    named = {PAD: special.pad, UNK: special.unk, START: special.start, EOS: special.eos, MASK: special.mask}
    return [special.pad if (id := named[own]) is None else id for own in range(len(RESERVED))]


def own_ids_of(kept_ids: Tensor, vocabulary: int, special: SpecialIds) -> Tensor:
    """[vocabulary] the drafter's id of each of the verifier's: UNK where it has none

    One id may be several special ones (start and pad in Marian, start and eos in NLLB): eos goes first, then start.
    """
    inside = kept_ids.clamp(0, vocabulary - 1)
    found = torch.full((vocabulary,), UNK, dtype=torch.int64, device=kept_ids.device)
    found[inside[len(RESERVED) :]] = torch.arange(len(RESERVED), len(kept_ids), device=kept_ids.device)
    for id, own in ((special.unk, UNK), (special.mask, MASK), (special.pad, PAD), (special.start, START)):
        if id is not None:
            found[id] = own
    found[special.eos] = EOS
    return found


def count_ids(ids: npt.NDArray[np.integer[Any]], vocabulary: int) -> Tensor:
    """[vocabulary] how often each occurs among ids [n], such as a corpus' targets or a decoder's outputs"""
    counts = np.zeros(vocabulary, np.int64)
    for first in range(0, len(ids), _PORTION):
        counts += np.bincount(ids[first : first + _PORTION], minlength=vocabulary)
    return torch.from_numpy(counts)


def most_frequent(counts: Tensor, special: SpecialIds, most: int | None = None) -> KeptIds:
    """The most frequent ids by counts [vocabulary] that occur at all, for a drafter of at most `most` own ids, the five
    reserved ones among them (None: every id, whether it occurs or not)"""
    ours = {*reserved_ids(special)}
    ranked = counts.clone().index_fill_(0, torch.tensor(sorted(ours)), -1)
    order = ranked.argsort(descending=True, stable=True)[: len(counts) - len(ours)]
    if most is not None:
        order = order[ranked[order] > 0][: max(0, most - len(RESERVED))]
    covered = counts[order].sum() + counts[special.eos]
    return KeptIds(order, float(covered / counts.sum().clamp(min=1)))
