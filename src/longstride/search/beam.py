"""Beam search over bundles of words (Zhang et al. 2020, Algorithm 1). Knows no model.

A step scores the next z slots of every live hypothesis, which are folded in one after another
(:mod:`longstride.search.continuations`); ordinary beam search is the case z = 1. The `width` best of all live on.

A sentence has `width` places, shared by live and finished hypotheses: one that finishes keeps its place, so a width of
1 is greedy search. A search is done when no place is live, or when no live hypothesis could still enter the n best: its
log-probability never rises, and penalties are monotone in length, so that it can score no better than by the larger of
the divisors of its length now and of the longest output. Endings are ranked in one of two ways:

- at their own slot, against the partial continuations of the same length: what a step says after EOS does not count;
- at the end of the step, as the paper's authors do (`count_dropped`): words after EOS are dropped from the output, but
  their log-probabilities and their number stay in the score.

A hypothesis that limits leave no word, nor its end, is given up; if all are, and none has finished, they end there with
what they have.

Hugging Face's beams (`like_hf`, for steps of one word) differ in three things: `width` hypotheses always live on, and
the `width` best finished ones by score are kept beside them; when a search is done is up to `early_stopping`; at the
longest output hypotheses are cut as they are, or end in an EOS that costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import torch
from torch import Tensor

from longstride.contract import EOS, PAD, Hypothesis
from longstride.search.continuations import (
    DEAD,
    Array,
    Continuations,
    SlotScores,
    StepScores,
    best,
    best_of_both,
    carry,
    fold,
    full,
    joined,
    library,
    pick,
)
from longstride.search.length_penalty import LengthPenalty


@dataclass(frozen=True)
class LikeHF:
    """What Hugging Face's beams can be told beside the length penalty."""

    early_stopping: bool | Literal["never"] = False
    """done as soon as `width` hypotheses have finished (True); or when the best live one, were it to end now (False) or
    as late as it may ("never"), scores no better than the worst of them"""
    forced_eos: bool = False
    """at the longest output EOS follows, of log-probability 0; else outputs are cut there, and no EOS is counted"""


@dataclass(frozen=True)
class Search:
    """How hypotheses are kept and ranked."""

    width: int
    n_best: int
    penalty: LengthPenalty
    step: int = 1
    """words of a bundle"""
    earliest: int = 0
    """EOS may not stand in a slot before this one"""
    count_dropped: bool = False
    """rank endings as the paper's authors do"""
    eos: int = EOS
    """the id that ends an output"""
    forced_first: int | None = None
    """the first word of every hypothesis, of log-probability 0; for steps of one word"""
    forced_last: int | None = None
    """the same of the last word of the longest output"""
    like_hf: LikeHF | None = None
    """search as Hugging Face does; for steps of one word"""

    @property
    def plain(self) -> bool:
        """Whether it is one that the kernels of our own know."""
        return self.forced_first is None and self.forced_last is None and self.like_hf is None

    def divisors(self, longest: int) -> Tensor:
        """[longest + 1] what the log-probability of an output of so many words is divided by"""
        words = torch.arange(longest + 1)
        return self.penalty((words // self.step + 1) * self.step if self.count_dropped else words + 1)


@dataclass
class BeamState:
    """The hypotheses of every sentence, as words in the order of writing. Live ones of a sentence are equally long."""

    words: Array
    """[sentences, width, columns] live hypotheses"""
    live: Array
    """[sentences, width] their log-probabilities, falling; -inf: no such hypothesis"""
    length: Array
    """[sentences] words of the live hypotheses so far"""
    finished_words: Array
    """[sentences, width, columns]"""
    finished: Array
    """[sentences, width] log-probabilities, EOS included; -inf: no such hypothesis"""
    finished_length: Array
    """[sentences, width] words, EOS not counted"""
    longest: Array
    """[sentences] most words, EOS not counted, an output may have"""
    done: Array
    """[sentences] bool"""

    @staticmethod
    def empty(sentences: int, width: int, columns: int, device: torch.device) -> BeamState:
        """All done, as tensors. There must be `step` columns more than an output can have words."""
        whole, flat = (sentences, width, columns), (sentences, width)
        return BeamState(
            words=torch.full(whole, PAD, dtype=torch.int64, device=device),
            live=torch.full(flat, DEAD, dtype=torch.float64, device=device),
            length=torch.zeros(sentences, dtype=torch.int64, device=device),
            finished_words=torch.full(whole, PAD, dtype=torch.int64, device=device),
            finished=torch.full(flat, DEAD, dtype=torch.float64, device=device),
            finished_length=torch.zeros(flat, dtype=torch.int64, device=device),
            longest=torch.zeros(sentences, dtype=torch.int64, device=device),
            done=torch.ones(sentences, dtype=torch.bool, device=device),
        )

    @property
    def buffers(self) -> list[Any]:
        """All its arrays."""
        return [getattr(self, field.name) for field in fields(self)]

    def open(self, sentences: Array, longest: Array) -> None:
        """Start fresh searches: one empty hypothesis each."""
        fresh = ((self.live, DEAD), (self.live[:, 0], 0.0), (self.finished, DEAD), (self.length, 0))
        for buffer, value in (*fresh, (self.finished_length, 0), (self.done, 0)):
            if isinstance(buffer, Tensor):
                buffer.index_fill_(0, sentences, value)
            else:
                buffer[sentences] = value
        self.longest[sentences] = longest

    def numpy(self) -> BeamState:
        """The same memory as arrays of NumPy's."""
        return BeamState(*(buffer.numpy() for buffer in self.buffers))

    def select(self, sentences: Array) -> Self:
        """Some sentences alone."""
        return type(self)(*(buffer[sentences] for buffer in self.buffers))

    def become(self, other: Self) -> None:
        """Take another's values, in the tensors that are here."""
        for mine, new in zip(self.buffers, other.buffers, strict=True):
            mine.copy_(new)


@dataclass(frozen=True)
class Endings:
    """The best endings of every sentence, some of them accepted."""

    scores: Array
    """[sentences, width]"""
    parents: Array
    """[sentences, width] the hypothesis each continues"""
    words: Array
    """[sentences, width, slots] up to EOS, and left-overs"""
    accepted: Array
    """[sentences, width] bool: whether it finishes"""


# --- a step ----------------------------------------------------------------------------------------------------------


class Beam:
    """The bookkeeping of one kind of search, with what it looks up."""

    def __init__(self, search: Search, columns: int, device: torch.device | None) -> None:
        """`device`: of tensors. None: arrays are NumPy's, so that numbers can be looked at, and what would change
        nothing left out."""

        def made(constant: Tensor) -> Array:
            return constant.numpy() if device is None else constant.to(device)

        self.search, self._look, self._columns = search, device is None, columns
        self._rank = made(torch.arange(search.width))
        self._slots = made(torch.arange(search.step))
        self._divisors = made(search.divisors(columns + search.step))

    def scores(self, state: BeamState) -> Array:
        """[sentences, width] scores of the finished hypotheses, -inf where there is none"""
        return self._scored(state.finished, state.finished_length, state.longest)

    def _scored(self, log_probabilities: Array, length: Array, longest: Array) -> Array:
        """Of hypotheses of `length` words, all [sentences, n]"""
        like_hf = self.search.like_hf
        if like_hf is not None and not like_hf.forced_eos:
            length = library(length).minimum(length, longest[:, None] - 1)  # those that were cut have no EOS to count
        return log_probabilities / self._divisors[length]

    def advance(self, state: BeamState, scores: StepScores) -> tuple[Array, Array]:
        """Extend by a step, finish, prune: changes the fields of the state, not its arrays.

        -> parents [sentences, width], the places that live hypotheses come from, and their newest words [..., step]
        """
        search, width, step, where = self.search, self.search.width, self.search.step, library(state.live).where
        sentences = len(state.live)
        at = state.length[:, None] + self._slots
        must_end = at >= state.longest[:, None]
        scores = scores.within(must_end, (at < search.earliest) & ~must_end if search.earliest else None)
        like_hf = search.like_hf
        if not search.plain:
            assert isinstance(scores, SlotScores), "for steps of one word"
            if like_hf is not None and like_hf.forced_eos:
                scores = scores.only(must_end[:, 0], search.eos, search.eos)
            if search.forced_first is not None:
                scores = scores.only(state.length == 0, search.forced_first, search.eos)
            if search.forced_last is not None:
                scores = scores.only(state.length == state.longest - 1, search.forced_last, search.eos)
        live = where(state.done[:, None], DEAD, state.live)[..., None]
        partial = Continuations(live, state.words[..., None, :0])
        taken = (state.finished > DEAD).sum(1)
        if isinstance(scores, SlotScores):
            scores = scores.or_end(live[..., 0] > DEAD, taken == 0)
        free = width - taken if like_hf is None else library(taken).full_like(taken, width)
        found: list[Endings] = []
        ended: Continuations | None = None
        for slot in range(step):
            choices = scores.at(slot, partial.words)
            grown = fold(partial, choices.ids, choices.words, width)
            if search.count_dropped:
                longer = None if ended is None else carry(ended, scores.at(slot, ended.words), width, self.search.eos)
                ended = best_of_both(longer, partial.ended(choices.end, self.search.eos), width)
            if slot == step - 1 or not search.count_dropped:
                top, picks = best(grown.scores.reshape(sentences, -1), width)
                ending, end = (partial, choices.end) if ended is None else (ended, None)
                left = self._rank_endings(ending, end, top, free, found)
                free = left if like_hf is None else free
            partial = grown
        if like_hf is not None and not like_hf.forced_eos:
            self._cut(state, top, picks, partial, found)
        if found:
            self._finish(state, found, at)

        alive = (self._rank < free[:, None]) & (top > DEAD)
        parents = where(alive, picks // partial.scores.shape[2], self._rank)
        last = pick(partial.words.reshape(sentences, -1, step), picks)
        last = where(alive[..., None], last, PAD)
        state.words = self._written(state.words, parents, last, at)
        state.live = where(alive, top, DEAD)
        state.length = where(state.done, state.length, state.length + step)
        state.done = state.done | (self._nothing_can_win(state) if like_hf is None else self._ends(state, like_hf))
        return parents, last

    def _written(self, past: Array, parents: Array, words: Array, at: Array) -> Array:
        """[sentences, width, columns] the past of `parents` with words [sentences, n, step] in columns `at`"""
        whole = pick(past, parents)
        rows = library(at).arange(len(at), device=at.device)[:, None, None]
        places = library(at).arange(whole.shape[1], device=at.device)[:, None]
        whole[rows, places, at.clip(0, self._columns - 1)[:, None]] = words
        return whole

    def _rank_endings(
        self, partial: Continuations, end: Array | None, live: Array, free: Array, found: list[Endings]
    ) -> Array:
        """What ends competes with the best live [sentences, width]: the `free` [sentences] best are accepted.

        `partial` with EOS behind it, of log-probability `end`; None: it has ended already. -> how many are free then
        """
        ending = partial.scores if end is None else partial.scores + end
        sentences, _, each = ending.shape
        ending = ending.reshape(sentences, -1)
        if self._look and (ending.max(1) < live[:, -1]).all():
            return free
        scores, picks = best(joined(ending, live), self.search.width)
        accepted = (picks < ending.shape[1]) & (self._rank < free[:, None]) & (scores > DEAD)
        if self._look and not accepted.any():
            return free
        words = (partial if end is None else partial.ended(end, self.search.eos)).words
        picks = picks.clip(0, ending.shape[1] - 1)
        words = pick(words.reshape(sentences, -1, words.shape[3]), picks)
        found.append(Endings(scores, picks // each, words, accepted))
        return free - accepted.sum(1)

    def _finish(self, state: BeamState, found: list[Endings], at: Array) -> None:
        """Move what was accepted into the free places of its sentence."""
        step, join, where = self.search.step, library(state.live).concatenate, library(state.live).where
        scores, parents, accepted = (
            join([getattr(one, name) for one in found], 1) for name in ("scores", "parents", "accepted")
        )
        spare = [full(found[0].words[..., :1], PAD)] * (step - 1)
        words = join([join([one.words, *spare], 2)[..., :step] for one in found], 1)
        whole = self._written(state.words, parents, words, at)
        length = state.length[:, None] + (words != self.search.eos).cumprod(2).sum(2)
        if self.search.like_hf is not None:
            totals = join([state.finished, where(accepted, scores, DEAD)], 1)
            length, whole = join([state.finished_length, length], 1), join([state.finished_words, whole], 1)
            _, kept = best(self._scored(totals, length, state.longest), self.search.width)
            state.finished, state.finished_length = pick(totals, kept), pick(length, kept)
            state.finished_words = pick(whole, kept)
            return
        place = (state.finished > DEAD).sum(1)[:, None] + accepted.cumsum(1) - 1
        goes = (place[:, None] == self._rank[:, None]) & accepted[:, None]  # [sentences, place, ending], one at most
        new, which = goes.any(2), (goes.cumsum(2) == 0).sum(2).clip(0, goes.shape[2] - 1)
        state.finished_words = where(new[..., None], pick(whole, which), state.finished_words)
        state.finished_length = where(new, pick(length, which), state.finished_length)
        state.finished = where(new, pick(scores, which), state.finished)

    def _cut(self, state: BeamState, top: Array, picks: Array, grown: Continuations, found: list[Endings]) -> None:
        """Of sentences that have come to their longest output, what lives on finishes as it is: top [sentences, width]
        at `picks`. What ends here is as long, so that the best of both are kept whoever ranks first."""
        here = state.length + 1 >= state.longest
        if self._look and not here.any():
            return
        accepted = here[:, None] & (top > DEAD)
        words = pick(grown.words.reshape(len(top), -1, grown.words.shape[3]), picks)
        found.append(Endings(top, picks // grown.scores.shape[2], words, accepted))

    def _ends(self, state: BeamState, like_hf: LikeHF) -> Array:
        """[sentences] bool: whether Hugging Face's search would go no further."""
        leading, past = state.live[:, 0], state.longest + like_hf.forced_eos
        over = (leading == DEAD) | (state.length >= past)
        worst = best(self.scores(state), self.search.width)[0][:, -1]
        if like_hf.early_stopping is True:
            return over | (worst > DEAD)
        late = like_hf.early_stopping == "never" and self.search.penalty.strength > 0
        hoped = leading / self._divisors[(past if late else state.length) - 1]
        return over | ((worst > DEAD) & (hoped <= worst))

    def _nothing_can_win(self, state: BeamState) -> Array:
        """[sentences] bool: no live hypothesis can still rank among the n best."""
        leading = state.live[:, 0]
        if self._look and not (state.finished > DEAD).any():
            return leading == DEAD
        settled = best(self.scores(state), self.search.n_best)[0][:, -1]
        longest = library(leading).maximum(self._divisors[state.length], self._divisors[state.longest])
        return (leading / longest <= settled) | (leading == DEAD)


# --- what comes out --------------------------------------------------------------------------------------------------


def best_first(n_best: int, scores: Array, *others: Array) -> list[Array]:
    """Of every sentence the `n_best` by scores [sentences, n], which come first, then others [sentences, n, ...]."""
    scores, order = best(scores, n_best)
    return [scores, *(pick(one, order) for one in others)]


def hypotheses(tokens: Array, lengths: Array, scores: Array, log_probabilities: Array) -> list[list[Hypothesis]]:
    """Per sentence what it has, from tokens [sentences, n, columns] and figures [sentences, n]; dead ones left out."""
    every = zip(tokens.tolist(), lengths.tolist(), scores.tolist(), log_probabilities.tolist(), strict=True)
    return [
        [
            Hypothesis(ids[:length], score, log_probability)
            for ids, length, score, log_probability in zip(*sentence, strict=True)
            if score > DEAD
        ]
        for sentence in every
    ]
