"""What a model says of the next slots of every hypothesis, and the partial continuations that are folded of it.

Slots are folded in one after another: the outer sum of a hypothesis's best partial continuations and the slot's best
words, pruned to `width`. Where slots are independent of each other that is exact; a slot may also depend on what stands
before it in the step (`StepScores`), and folding is then a beam search within the step. Knows no beam.

Arrays are PyTorch's or NumPy's, and the code is the same: on a processor PyTorch takes several times as long for
operations on a handful of numbers, which is what a step of a small model would then wait for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from longstride.contract import EOS

DEAD = float("-inf")

Array = Any
"""A tensor, or an array of NumPy's"""


def library(x: Array) -> Any:
    """Whose array it is."""
    return torch if isinstance(x, Tensor) else np


def pick(x: Array, at: Array) -> Array:
    """[rows, m, ...] at [rows, n] -> [rows, n, ...]"""
    return x[library(at).arange(len(at), device=at.device)[:, None], at]


def best(scores: Array, count: int) -> tuple[Array, Array]:
    """[rows, n] -> the `count` largest and where they stand; of equals the first, which `topk` does not promise."""
    if isinstance(scores, Tensor):
        values, at = scores.sort(dim=1, descending=True, stable=True)
        return values[:, :count], at[:, :count]
    at = (-scores).argsort(axis=1, kind="stable")[:, :count]
    return pick(scores, at), at


# --- what a model says of a step -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choices:
    """What may stand in one slot: after each partial continuation of a hypothesis, or after any of them alike."""

    ids: Array
    """[sentences, width, partial or 1, kept] the best words, EOS not among them"""
    words: Array
    """[sentences, width, partial or 1, kept] log-probabilities of these words, falling; -inf: forbidden"""
    end: Array
    """[sentences, width, partial or 1] log-probability of EOS; -inf: forbidden"""


class StepScores(Protocol):
    """What a model says of the next slots of every hypothesis."""

    def within(self, must_end: Array, too_early: Array | None) -> StepScores:
        """The same with what may not stand forbidden: words in the slots `must_end`, EOS in those `too_early`, both
        [sentences, step] bool."""

    def at(self, slot: int, chosen: Array) -> Choices:
        """For one slot, given what stands in those before it: chosen [sentences, width, partial, slot]"""


@dataclass(frozen=True)
class SlotScores:
    """Slots that are independent of each other."""

    ids: Array
    """[sentences, width, step, kept] the best words of each slot, EOS not among them"""
    words: Array
    """[sentences, width, step, kept] log-probabilities of these words, falling; -inf: forbidden"""
    end: Array
    """[sentences, width, step] log-probability of EOS"""
    end_anyway: Array | None = None
    """[sentences, width, step] the same where it is not forbidden by anything; only under limits that hang on what came
    before, which may leave a hypothesis nothing"""

    def within(self, must_end: Array, too_early: Array | None) -> SlotScores:
        """See :meth:`StepScores.within`."""
        where = library(self.words).where
        words = where(must_end[:, None, :, None], DEAD, self.words)
        end = self.end if too_early is None else where(too_early[:, None], DEAD, self.end)
        return SlotScores(self.ids, words, end, self.end_anyway)

    def only(self, where: Array, id: int, eos: int) -> SlotScores:
        """The same where in some sentences [sentences] one id alone, a word or EOS, may stand, and costs nothing."""
        choose, kept = library(self.words).where, where[:, None, None]
        first = library(self.words).arange(self.words.shape[-1], device=self.words.device) == 0
        ids = choose(kept[..., None], id, self.ids)
        words = choose(kept[..., None], choose(first & (id != eos), 0.0, DEAD), self.words)
        return SlotScores(ids, words, choose(kept, 0.0 if id == eos else DEAD, self.end), self.end_anyway)

    def prescribed(self, where: Array, word: Array) -> SlotScores:
        """The same where in some sentences [sentences] a word of their own [sentences] alone may stand, for nothing."""
        choose, kept = library(self.words).where, where[:, None, None, None]
        first = library(self.words).arange(self.words.shape[-1], device=self.words.device) == 0
        ids = choose(kept, word[:, None, None, None], self.ids)
        words = choose(kept, choose(first, 0.0, DEAD), self.words)
        return SlotScores(ids, words, choose(kept[..., 0], DEAD, self.end), self.end_anyway)

    def or_end(self, live: Array, wanting: Array) -> SlotScores:
        """The same where EOS follows all live [sentences, width] hypotheses of a sentence if nothing else may follow
        any of them; in `wanting` [sentences] alone."""
        if self.end_anyway is None:
            return self
        can = ((self.words > DEAD).any(-1) | (self.end > DEAD))[..., 0] & live
        stuck = (wanting & ~can.any(1))[:, None, None]
        return SlotScores(self.ids, self.words, library(self.words).where(stuck, self.end_anyway, self.end))

    def at(self, slot: int, chosen: Array) -> Choices:
        """See :meth:`StepScores.at`."""
        one = slice(slot, slot + 1)
        return Choices(self.ids[:, :, one], self.words[:, :, one], self.end[:, :, one])


# --- within a step ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Continuations:
    """Partial continuations of every hypothesis."""

    scores: Array
    """[sentences, width, n]"""
    words: Array
    """[sentences, width, n, slots so far] those of one that has ended hold an EOS; what stands behind it is dropped"""

    def ended(self, end: Array, eos: int = EOS) -> Continuations:
        """With an EOS, whose log-probabilities are end [sentences, width, n or 1]"""
        scores = self.scores + end
        return Continuations(scores, joined(self.words, full(scores[..., None], eos)))


def fold(partial: Continuations, ids: Array, words: Array, width: int) -> Continuations:
    """One slot more: the outer sum of partial continuations and the slot's words (as in `Choices`), pruned."""
    kept = words.shape[-1]
    if not partial.words.shape[3] and kept <= width:  # the first slot's words are in order already
        return Continuations(partial.scores + words[:, :, 0], ids[:, :, 0, :, None])
    outer, each = partial.scores[..., None] + words, ids.shape[2] * kept
    flat = ids.reshape(-1, each)
    scores, picks = best(outer.reshape(len(flat), -1), width)
    before = pick(partial.words.reshape(len(flat), -1, partial.words.shape[3]), picks // kept)
    chosen = joined(before, pick(flat, picks % each)[..., None])
    shape = (*partial.scores.shape[:2], -1)
    return Continuations(scores.reshape(shape), chosen.reshape(*shape, chosen.shape[2]))


def carry(ended: Continuations, choices: Choices, width: int, eos: int = EOS) -> Continuations:
    """One slot more of what has ended before, its words or another EOS counted."""
    anything = joined(choices.words, choices.end[..., None])
    ids = joined(choices.ids, full(choices.ids[..., :1], eos))
    return fold(ended, ids, anything, width)


def joined(left: Array, right: Array, axis: int = -1) -> Array:
    """One behind the other."""
    return library(left).concatenate([left, right], axis)


def full(like: Array, value: int) -> Array:
    """Of the same shape, ids that are all `value`."""
    return library(like).full_like(like, value, dtype=library(like).int64)


def best_of_both(old: Continuations | None, new: Continuations, width: int) -> Continuations:
    """The `width` best of each hypothesis."""
    if old is None:
        return new
    both, words = joined(old.scores, new.scores), joined(old.words, new.words, 2)
    sentences, hypotheses, count = both.shape
    scores, at = best(both.reshape(-1, count), width)
    words = pick(words.reshape(len(at), count, -1), at)
    shape = (sentences, hypotheses, -1)
    return Continuations(scores.reshape(shape), words.reshape(*shape, words.shape[2]))
