"""Algorithm 1 over a table of sentences: the hypotheses of each, all extended by a step at once.

All rows are hypotheses; those of one sentence lie side by side and share its memory. Caches follow their hypotheses by
reordering, and only as many slots of them are looked at as the longest live hypothesis has written. Where the runner
does not record, caches grow as hypotheses do, and empty places can be dropped. Where kernels of our own are used, one
of them does all that Algorithm 1 does with a step's best words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from longstride.contract import EOS, START, Limits, Runner, Step
from longstride.ops import aligned
from longstride.search import multiword
from longstride.systems.interleaved.kernels import advance, beam_fits, divisors_of
from longstride.systems.interleaved.linked_scores import LinkedScores, best_words
from longstride.systems.interleaved.model import InterleavedModel
from longstride.systems.interleaved.sentences import closing_step, sentences_of
from longstride.systems.interleaved.table import Search, Table

SHORTEST_SPAN = 64
"""Where every span is recorded by itself, none is shorter."""


class BeamTable(Table):
    """`search.width` rows per sentence."""

    def __init__(
        self, model: InterleavedModel, runner: Runner, search: Search, limits: Limits, capacity: int, source: int
    ) -> None:
        super().__init__(model, runner, search, capacity, limits, source, grows=True)
        device = runner.device
        self.hypotheses = multiword.MultiWordTable.empty(capacity, search.width, self.columns, device)
        shape = (capacity, search.width, self.options.step)
        self._last = torch.full(shape, START, dtype=torch.int64, device=device)
        self._no_words = torch.cat([self._never, torch.tensor([EOS], device=device)])
        # Whether what lies between model calls is a kernel of our own, and what that keeps: see `beam_kernels`.
        plain = self._tie is None and not search.count_dropped and model.model.options.vocabulary >= search.width
        self._folds = self._own and plain and beam_fits(search.width, self.options.step)
        self._start = torch.zeros(capacity * search.width, dtype=torch.int64, device=device)
        self._divisors = divisors_of(search.penalty, self.columns, device)
        self._stepping: dict[int, Callable[[], Tensor]] = {}

    @property
    def buffers(self) -> list[Tensor]:
        """All that a step or an entrance writes."""
        return [*self.hypotheses.buffers, self._last, self._start, *super().buffers]

    @property
    def recordings(self) -> int:
        """How many steps and entrances were recorded."""
        return len(self._stepping) + self._entrance.recordings if self.steady else 0

    def _open(self, slots: Tensor, longest: Tensor) -> None:
        self.hypotheses.open(slots, longest)
        self._last.index_fill_(0, slots, START)
        self._start.view(-1, self.search.width).index_fill_(0, slots, 0)

    def step(self, needed: int) -> Tensor:
        """A step of every live hypothesis, none of which fills more than `needed` slots with it.

        -> [sentences] bool: those that took part
        """
        if not self.steady:
            return self._step(aligned(needed))
        span = min(self._cache.longest, self._runner.room(needed, SHORTEST_SPAN))
        if span not in self._stepping:
            self._stepping[span] = self._runner.record(f"beam {span}", partial(self._step, span), self.buffers)
        return self._stepping[span]()

    def _step(self, span: int) -> Tensor:
        if self._folds:
            return self._fold(span)
        active, search = ~self.hypotheses.done, self.search
        found = replace(self.hypotheses)
        parents, last = multiword.advance(
            found, self._score(span), search.penalty, search.n_best, self._earliest, search.count_dropped
        )
        first = torch.arange(len(parents), device=parents.device)[:, None] * search.width
        rows = (first + parents).view(-1)
        if self.steady:
            self.hypotheses.become(found)
            self._last.copy_(last)
            self._cache.shuffle(rows, span)
        else:
            self.hypotheses, self._last = found, last
            self._cache.reorder(rows, span)
        return active

    def _fold(self, span: int) -> Tensor:
        """The same in one kernel behind the model's and what prepares candidates; caches follow."""
        logits, _ = self._extended(self._start, span)
        found = best_words(logits, self._no_words, self.search.width)
        rows, active = advance(
            found, self._divisors, self.hypotheses, self._last, self._start, self._earliest, self.search.n_best
        )
        (self._cache.shuffle if self.steady else self._cache.reorder)(rows, span)
        return active

    def _extended(self, start: Tensor, span: int) -> tuple[Tensor, Tensor | None]:
        """[sentences, width, step, vocabulary] logits of the slots from start [rows] on, and what a link has to know"""
        self._cache.grow(span)
        ids = self._last.view(-1, self.options.step)
        logits, factors = self._runner.call(self._extend, ids, start, self._cache, self._memory, self._layout, span)
        return logits.view(*self._last.shape, -1), factors

    def _score(self, span: int) -> multiword.StepScores:
        hypotheses, step = self.hypotheses, self.options.step
        sentences, width = hypotheses.live.shape
        start = torch.where(hypotheses.done, 0, hypotheses.length).repeat_interleave(width)
        logits, factors = self._extended(start, span)
        if self._tie is None:
            return best_words(logits, self._no_words, width)
        assert factors is not None
        first = best_words(logits[:, :, : self.options.h], self._no_words, width)
        tie = partial(self._runner.call, self._tie)
        return LinkedScores(first, logits, factors.view(sentences, width, step, -1), self._no_words, tie)

    def closing(self, active: Tensor) -> Step:
        """The sentences that ended with the last step, in which `active` took part, written whole."""
        hypotheses = self.hypotheses
        best = hypotheses.scores(self.search.penalty).argmax(dim=1, keepdim=True)
        chosen = best[..., None].expand(-1, 1, self.columns)
        words = hypotheses.finished_words.gather(1, chosen)[:, 0]
        lengths = hypotheses.finished_length.gather(1, best)[:, 0]
        found = sentences_of(words, lengths, self.options, self.search.dedup)
        return closing_step(found, self.ticket, active, active & hypotheses.done)

    def keep(self, slots: Tensor) -> None:
        """Drop all sentences but these [n]; not where steps are recorded."""
        width = self.search.width
        self._cache.keep((slots[:, None] * width + torch.arange(width, device=slots.device)).view(-1))
        self._memory = self._memory.select(slots)
        self.hypotheses = self.hypotheses.select(slots)
        self._last = self._last[slots]
        self._start = self._start.view(-1, width)[slots].flatten()
        self.ticket = self.ticket[slots]
