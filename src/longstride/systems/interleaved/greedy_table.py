"""The most likely words of a step, all at once, for a table of rows that are written from all their ends.

With a link they are chosen in c rounds, a word of every direction in each, given the word before it.

Without de-duplication every step is final when it is made; its positions are then numbers in the order of the sentence,
whose length nobody knows yet. Where kernels of our own are used, a step is one that lays out what the layers read, the
model's, one that chooses and one that commits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from longstride.contract import Limits, Runner, Step
from longstride.systems.interleaved.model import InterleavedModel
from longstride.systems.interleaved.rows import Committed, Rows
from longstride.systems.interleaved.sentences import closing_step, sentences_of
from longstride.systems.interleaved.table import Search, Table
from longstride.verification.acceptance import Reading
from longstride.verification.kernels import Bounds, permitted, read_fused
from longstride.verification.reading import read, scored


class GreedyTable(Table):
    """One row per sentence."""

    def __init__(
        self, model: InterleavedModel, runner: Runner, search: Search, limits: Limits, capacity: int, source: int
    ) -> None:
        super().__init__(model, runner, search, capacity, limits, source)
        device = runner.device
        self.rows = Rows(capacity, self.room, self.options, device)
        self._longest = torch.zeros(capacity, dtype=torch.int64, device=device)
        self._permitted = permitted(self._never, model.model.options.vocabulary)
        self._none = torch.zeros(capacity, dtype=torch.int64, device=device)  # nothing is ever drafted
        self._stepping: Callable[[], Step] | None = None

    @property
    def buffers(self) -> list[Tensor]:
        """All that a step or an entrance writes."""
        return [*self.rows.buffers, self._longest, *super().buffers]

    @property
    def recordings(self) -> int:
        """How many steps and entrances were recorded."""
        return (self._stepping is not None) + self._entrance.recordings if self.steady else 0

    def _open(self, slots: Tensor, longest: Tensor) -> None:
        self.rows.open(slots)
        self._longest.index_copy_(0, slots, longest)

    def step(self) -> Step:
        """One step of every live row."""
        if self._stepping is None:
            self._stepping = self._runner.record("greedy", self._step, self.buffers)
        return self._stepping()

    def _step(self) -> Step:
        rows, search = self.rows, self.search
        found, committed = self._fused() if self._own else self._plain()
        if search.dedup:
            sentences = sentences_of(rows.words, rows.length, self.options, search.dedup)
            return closing_step(sentences, self.ticket, committed.active, committed.active & rows.done)
        none = self._none
        return Step(self.ticket, committed.active, committed.position, found.top, committed.written, none, none)

    def _plain(self) -> tuple[Reading, Committed]:
        rows = self.rows
        slots = rows.slots
        # Idle rows idle at the front, where there is room.
        logits, factors = self._extended(torch.where(rows.done, 0, rows.filled))

        def choose(logits: Tensor, first: int) -> Reading:
            at = slots[:, first : first + logits.shape[1]]
            return scored(read(logits, at, self._longest, self._never, self._earliest), logits)

        found = self._chosen(logits, factors, choose)
        return found, rows.commit(found, slots, self.search.count_dropped)

    def _fused(self) -> tuple[Reading, Committed]:
        rows = self.rows
        start = rows.start
        logits, factors = self._extended(start)

        def choose(logits: Tensor, first: int) -> Reading:
            bounds = Bounds(self._permitted, start + first if first else start, self._longest, self._earliest)
            return read_fused(logits, bounds)

        found = self._chosen(logits, factors, choose)
        return found, rows.commit_fused(found, self.search.count_dropped)

    def _extended(self, start: Tensor) -> tuple[Tensor, Tensor | None]:
        """[rows, step, vocabulary] logits of the slots from start [rows] on, and what a link has to know"""
        found: tuple[Tensor, Tensor | None] = self._runner.call(
            self._extend, self.rows.ids, start, self._cache, self._memory, self._layout
        )
        return found

    def _chosen(self, logits: Tensor, factors: Tensor | None, choose: Callable[[Tensor, int], Reading]) -> Reading:
        """The best words, each given its neighbour; `choose` gets the logits of some slots, and which is the first."""
        if self._tie is None:
            return choose(logits, 0)
        assert factors is not None
        h = self.options.h
        every = [choose(logits[:, :h], 0)]
        for first in range(h, self.options.step, h):
            here = slice(first, first + h)
            given = self._runner.call(self._tie, logits[:, here], factors[:, here], every[-1].top)
            every.append(choose(given, first))
        top, top_logit = (torch.cat([getattr(one, name) for one in every], dim=1) for name in ("top", "top_logit"))
        return Reading(
            top, top_logit, torch.cat([one.normaliser for one in every if one.normaliser is not None], dim=1)
        )
