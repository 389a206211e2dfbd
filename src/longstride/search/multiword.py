"""Beam search when a model call predicts several words at once (Zhang et al. 2020, Algorithm 1). Knows no model.

A step gives, for every live hypothesis, a distribution for each of its next z slots. Slots are folded in one after
another: the outer sum of the hypothesis's best partial continuations and the slot's best words, pruned to `width`
again. Where slots are independent of each other, that is exact: who is not among the `width` best of its hypothesis
after some slots cannot be later. A slot may also depend on what stands before it in the step (`StepScores`): folding is
then a beam search within the step. Either way the `width` best of all hypotheses live on.

Places are shared by live and finished hypotheses as in :mod:`longstride.search.beam`, which one word per step is. What
ends may be ranked in two ways:

- at its own slot: a hypothesis that ends in slot i competes with the partial continuations of the same length, so that
  what it would have dropped neither helps nor harms, and width 1 is greedy search slot by slot;
- at the end of the step, as the paper's authors do: words after EOS are dropped from the output, but their
  log-probabilities and their number stay in the score.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.contract import EOS, PAD
from longstride.search.beam import DEAD
from longstride.search.length_penalty import LengthPenalty
from longstride.search.rows import Rows


@dataclass
class MultiWordTable(Rows):
    """The hypotheses of every sentence, as words in the order of writing. Live ones of a sentence are equally long."""

    words: Tensor
    """[sentences, width, columns] live hypotheses"""
    live: Tensor
    """[sentences, width] their log-probabilities; -inf: no such hypothesis"""
    length: Tensor
    """[sentences] words of the live hypotheses so far"""
    finished_words: Tensor
    """[sentences, width, columns]"""
    finished: Tensor
    """[sentences, width] log-probabilities, EOS included; -inf: no such hypothesis"""
    finished_length: Tensor
    """[sentences, width] words, EOS not counted"""
    counted: Tensor
    """[sentences, width] the length that the penalty of a finished hypothesis goes by"""
    longest: Tensor
    """[sentences] most words, EOS not counted, an output may have"""
    done: Tensor
    """[sentences] bool"""

    @staticmethod
    def empty(sentences: int, width: int, columns: int, device: torch.device) -> MultiWordTable:
        """All done, waiting for sentences. There must be `step` columns more than an output can have words."""
        whole, flat = (sentences, width, columns), (sentences, width)
        return MultiWordTable(
            words=torch.full(whole, PAD, dtype=torch.int64, device=device),
            live=torch.full(flat, DEAD, dtype=torch.float64, device=device),
            length=torch.zeros(sentences, dtype=torch.int64, device=device),
            finished_words=torch.full(whole, PAD, dtype=torch.int64, device=device),
            finished=torch.full(flat, DEAD, dtype=torch.float64, device=device),
            finished_length=torch.zeros(flat, dtype=torch.int64, device=device),
            counted=torch.ones(flat, dtype=torch.int64, device=device),
            longest=torch.zeros(sentences, dtype=torch.int64, device=device),
            done=torch.ones(sentences, dtype=torch.bool, device=device),
        )

    def open(self, sentences: Tensor, longest: Tensor) -> None:
        """Start fresh searches: one empty hypothesis each."""
        self.live.index_fill_(0, sentences, DEAD)
        self.live[:, 0].index_fill_(0, sentences, 0.0)
        self.length.index_fill_(0, sentences, 0)
        self.finished.index_fill_(0, sentences, DEAD)
        self.finished_length.index_fill_(0, sentences, 0)
        self.counted.index_fill_(0, sentences, 1)
        self.longest.index_copy_(0, sentences, longest)
        self.done.index_fill_(0, sentences, False)

    def scores(self, penalty: LengthPenalty) -> Tensor:
        """[sentences, width] scores of the finished hypotheses, -inf where there is none."""
        return self.finished / penalty(self.counted)


@dataclass(frozen=True)
class Choices:
    """What may stand in one slot: after each partial continuation of a hypothesis, or after any of them alike."""

    ids: Tensor
    """[sentences, width, partial or 1, kept] the best words, EOS not among them"""
    words: Tensor
    """[sentences, width, partial or 1, kept] float64 log-probabilities of these words; -inf: forbidden"""
    end: Tensor
    """[sentences, width, partial or 1] float64 log-probability of EOS; -inf: forbidden"""


class StepScores(Protocol):
    """What a model says of the next slots of every hypothesis."""

    @property
    def step(self) -> int:
        """How many slots there are."""

    def within(self, must_end: Tensor, too_early: Tensor) -> StepScores:
        """The same with what may not stand forbidden: words in the slots `must_end`, EOS in those `too_early`, both
        [sentences, step] bool."""

    def at(self, slot: int, chosen: Tensor) -> Choices:
        """For one slot, given what stands in those before it: chosen [sentences, width, partial, slot]"""


@dataclass(frozen=True)
class SlotScores:
    """Slots that are independent of each other: a partial continuation may hold whatever it does."""

    ids: Tensor
    """[sentences, width, step, kept] the best words of each slot, EOS not among them"""
    words: Tensor
    """[sentences, width, step, kept] float64 log-probabilities of these words; -inf: forbidden"""
    end: Tensor
    """[sentences, width, step] float64 log-probability of EOS"""

    @property
    def step(self) -> int:
        """How many slots there are."""
        return self.end.shape[2]

    def within(self, must_end: Tensor, too_early: Tensor) -> SlotScores:
        """See :meth:`StepScores.within`; of all slots at once."""
        words = self.words.masked_fill(must_end[:, None, :, None], DEAD)
        return replace(self, words=words, end=self.end.masked_fill(too_early[:, None], DEAD))

    def at(self, slot: int, chosen: Tensor) -> Choices:
        """See :meth:`StepScores.at`."""
        one = slice(slot, slot + 1)
        return Choices(self.ids[:, :, one], self.words[:, :, one], self.end[:, :, one])


@dataclass(frozen=True)
class Endings:
    """Continuations that end, some of them to be finished."""

    scores: Tensor
    """[sentences, n]"""
    parents: Tensor
    """[sentences, n] the hypothesis each continues"""
    words: Tensor
    """[sentences, n, step] what stands before its EOS, and left-overs"""
    count: Tensor
    """[sentences, n] how many words that is"""
    accepted: Tensor
    """[sentences, n] bool: which are finished"""


def advance(
    table: MultiWordTable, slots: StepScores, penalty: LengthPenalty, n_best: int, earliest: int, count_dropped: bool
) -> tuple[Tensor, Tensor]:
    """Extend by a step, finish, prune. Changes the table; the new live hypotheses' parents and last words.

    parents [sentences, width] index the old places; words are [sentences, width, step]. EOS may not stand in a slot
    before `earliest`, and nothing else in slot `longest`. With `count_dropped`, endings are ranked as the authors do.
    """
    sentences, width = table.live.shape
    step = slots.step
    at = table.length[:, None] + torch.arange(step, device=table.live.device)
    must_end = at >= table.longest[:, None]
    slots = slots.within(must_end, (at < earliest) & ~must_end)

    free = width - (table.finished > DEAD).sum(dim=1)
    live = table.live.masked_fill(table.done[:, None], DEAD)[..., None]  # [sentences, width, partial continuations]
    chosen = table.words.new_empty(sentences, width, 1, 0)
    found: list[Endings] = []
    ended: Ended | None = None
    for slot in range(step):
        choices = slots.at(slot, chosen)
        ending = live + choices.end
        grown, picks = fold(live, choices.words, width)
        if count_dropped:
            longer = None if ended is None else carry(ended, slots.at(slot, ended.words), width)
            ended = best_ended(longer, Ended.at(ending, F.pad(chosen, (0, 1), value=EOS), slot), width)
        else:
            endings = rank(Ended.at(ending, chosen, slot), grown, free)
            free = free - endings.accepted.sum(dim=1)
            found.append(endings)
        chosen = _traced(chosen, choices.ids, picks)
        live = grown
    if ended is not None:
        endings = rank(ended, live, free)
        free = free - endings.accepted.sum(dim=1)
        found.append(endings)

    _finish(table, found, step if count_dropped else None)
    kept = live.shape[2]
    scores, picks = live.reshape(sentences, -1).topk(width, dim=1)
    alive = (torch.arange(width, device=picks.device) < free[:, None]) & (scores > DEAD)
    parents = picks // kept
    last = chosen.reshape(sentences, -1, step).gather(1, picks[..., None].expand(-1, -1, step))
    last = torch.where(alive[..., None], last, PAD)

    moved = table.words.gather(1, parents[..., None].expand_as(table.words))
    columns = at.clamp(max=moved.shape[2] - 1)[:, None].expand_as(last)
    table.words = moved.scatter(2, columns, last)
    table.live = torch.where(alive, scores, DEAD)
    table.length = torch.where(table.done, table.length, table.length + step)
    table.done = table.done | _nothing_can_win(table, penalty, n_best, step if count_dropped else None)
    return parents, last


def fold(live: Tensor, words: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The outer sum with one slot's words, pruned to at most `width`: scores and picks.

    live [..., partial continuations], words [..., partial or 1, kept] log-probabilities of the slot's best words. A
    pick counts through the outer sum: partial continuation · kept + word.
    """
    outer = (live[..., None] + words).flatten(-2)
    scores, picks = outer.topk(min(width, outer.shape[-1]), dim=-1)
    return scores, picks


def _traced(chosen: Tensor, ids: Tensor, picks: Tensor) -> Tensor:
    """The words of the picked continuations: chosen [s, width, partial, i], ids [s, width, partial or 1, kept] -> one
    slot more"""
    kept = ids.shape[-1]
    before = chosen.gather(2, (picks // kept)[..., None].expand(-1, -1, -1, chosen.shape[3]))
    flat = ids.flatten(2)
    return torch.cat([before, flat.gather(2, picks % flat.shape[2])[..., None]], dim=-1)


@dataclass(frozen=True)
class Ended:
    """Per hypothesis, continuations with an EOS in them."""

    scores: Tensor
    """[sentences, width, n]"""
    words: Tensor
    """[sentences, width, n, slots so far] those after EOS are dropped"""
    count: Tensor
    """[sentences, width, n] words before EOS"""

    @staticmethod
    def at(scores: Tensor, chosen: Tensor, slot: int) -> Ended:
        """Those that end in this very slot."""
        return Ended(scores, chosen, torch.full_like(scores, slot, dtype=torch.int64))


def carry(ended: Ended, choices: Choices, width: int) -> Ended:
    """One slot more of what has ended before, its words or another EOS counted: the `width` best of each hypothesis."""
    anything = torch.cat([choices.words, choices.end[..., None]], dim=-1)
    kept = min(width, anything.shape[-1])
    best, which = anything.topk(kept, dim=-1)
    scores, picks = fold(ended.scores, best, width)
    words = _traced(ended.words, F.pad(choices.ids, (0, 1), value=EOS).gather(-1, which), picks)
    return Ended(scores, words, ended.count.gather(2, picks // kept))


def best_ended(old: Ended | None, new: Ended, width: int) -> Ended:
    """The `width` best of each hypothesis among what has ended before, if anything has, and what ends now."""
    if old is None:
        return new
    both = torch.cat([old.scores, new.scores], dim=2)
    best, at = both.topk(min(width, both.shape[2]), dim=2)
    words = torch.cat([old.words, new.words], dim=2)
    count = torch.cat([old.count, new.count], dim=2)
    return Ended(best, words.gather(2, at[..., None].expand(-1, -1, -1, words.shape[3])), count.gather(2, at))


def rank(ended: Ended, live: Tensor, free: Tensor) -> Endings:
    """Which of the ended [sentences, width, n] are among the `free` [sentences] best, live [..., m] ones counted."""
    sentences, width, each = ended.scores.shape
    flat = ended.scores.reshape(sentences, -1)
    scores, picks = torch.cat([flat, live.reshape(sentences, -1)], dim=1).topk(width, dim=1)
    ends = picks < flat.shape[1]
    picks = picks.clamp(max=flat.shape[1] - 1)
    accepted = ends & (scores > DEAD) & (torch.arange(width, device=picks.device) < free[:, None])
    words = ended.words.reshape(sentences, width * each, -1)
    words = words.gather(1, picks[..., None].expand(-1, -1, words.shape[2]))
    return Endings(scores, picks // each, words, ended.count.reshape(sentences, -1).gather(1, picks), accepted)


def _finish(table: MultiWordTable, found: list[Endings], counted_step: int | None) -> None:
    """Move what is finished into the free places of its sentence."""
    _, width, columns = table.words.shape
    longest = max(endings.words.shape[2] for endings in found)
    accepted = torch.cat([endings.accepted for endings in found], dim=1)
    # Never more than `width` of a sentence are: bring them to the front.
    order = accepted.long().argsort(dim=1, descending=True, stable=True)[:, :width]
    accepted = accepted.gather(1, order)
    scores, parents, count = (
        torch.cat([getattr(endings, name) for endings in found], dim=1).gather(1, order)
        for name in ("scores", "parents", "count")
    )
    words = torch.cat([F.pad(one.words, (0, longest - one.words.shape[2]), value=PAD) for one in found], dim=1)
    words = words.gather(1, order[..., None].expand(-1, -1, longest))

    whole = table.words.gather(1, parents[..., None].expand(-1, -1, columns))
    at = table.length[:, None, None] + torch.arange(longest, device=words.device)
    whole = whole.scatter(2, at.clamp(max=columns - 1).expand_as(words), words)
    length = table.length[:, None] + count
    counted = length + 1 if counted_step is None else (table.length[:, None] + counted_step).expand_as(length)

    place = (table.finished > DEAD).sum(dim=1, keepdim=True) + accepted.cumsum(dim=1) - 1
    spare = torch.where(accepted, place, width)  # column `width` catches all that are not finished

    def put(into: Tensor, values: Tensor) -> Tensor:
        room = torch.cat([into, into[:, :1]], dim=1)
        index = spare if values.dim() == 2 else spare[..., None].expand_as(values)
        return room.scatter(1, index, values)[:, :width]

    table.finished_words = put(table.finished_words, whole)
    table.finished_length = put(table.finished_length, length)
    table.counted = put(table.counted, counted)
    table.finished = put(table.finished, scores)


def _nothing_can_win(table: MultiWordTable, penalty: LengthPenalty, n_best: int, counted_step: int | None) -> Tensor:
    """[sentences] bool: no live hypothesis can still rank among the n best."""
    settled = table.scores(penalty).topk(n_best, dim=1).values[:, -1]
    if counted_step is None:
        soonest, latest = table.length + 1, table.longest + 1
    else:
        soonest = table.length + counted_step
        latest = (table.longest // counted_step + 1) * counted_step
    bound = table.live.max(dim=1).values / penalty.best(soonest, latest)
    return (bound <= settled) | (table.live == DEAD).all(dim=1)
