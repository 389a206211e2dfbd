"""The most likely words of a step, all at once, for a table of rows that are written from all their ends.

With a link they are chosen in c rounds, a word of every direction in each, given the word before it.

Words lie in the order of writing, slot after slot. Without de-duplication every step is final when it is made; its
positions are then numbers in the order of the sentence, whose length nobody knows yet.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from longstride.contract import EOS, START, Limits, Runner, Step
from longstride.systems.interleaved.model import InterleavedModel
from longstride.systems.interleaved.orders import after_all, anchors
from longstride.systems.interleaved.sentences import closing_step, sentences_of
from longstride.systems.interleaved.table import Search, Table
from longstride.verification.reading import read


class GreedyTable(Table):
    """One row per sentence."""

    def __init__(
        self, model: InterleavedModel, runner: Runner, search: Search, limits: Limits, capacity: int, source: int
    ) -> None:
        super().__init__(model, runner, search, capacity, limits, source)
        device = runner.device
        self.words = torch.zeros(capacity, self.columns, dtype=torch.int64, device=device)
        self.filled = torch.zeros(capacity, dtype=torch.int64, device=device)
        self.length = torch.zeros(capacity, dtype=torch.int64, device=device)
        self.log_probability = torch.zeros(capacity, dtype=torch.float64, device=device)
        self.done = torch.ones(capacity, dtype=torch.bool, device=device)
        self._longest = torch.zeros(capacity, dtype=torch.int64, device=device)
        self._stepping: Callable[[], Step] | None = None
        o = self.options
        slots = torch.arange(self.columns, device=device)
        self._anchors = anchors(slots, self.room, o.h, o.order)
        self._behind = after_all(self.room, o.h)

    @property
    def buffers(self) -> list[Tensor]:
        """All that a step or an entrance writes."""
        own = [self.words, self.filled, self.length, self.log_probability, self.done, self._longest]
        return [*own, *super().buffers]

    @property
    def recordings(self) -> int:
        """How many steps and entrances were recorded."""
        return (self._stepping is not None) + self._entrance.recordings if self.steady else 0

    def _open(self, slots: Tensor, longest: Tensor) -> None:
        self.filled.index_fill_(0, slots, 0)
        self.length.index_fill_(0, slots, 0)
        self.log_probability.index_fill_(0, slots, 0.0)
        self.done.index_fill_(0, slots, False)
        self._longest.index_copy_(0, slots, longest)

    def step(self) -> Step:
        """One step of every live row."""
        if self._stepping is None:
            self._stepping = self._runner.record("greedy", self._step, self.buffers)
        return self._stepping()

    def _step(self) -> Step:
        o, step = self.options, self.options.step
        active = ~self.done
        before = torch.where(active, self.filled, 0)  # idle rows idle at the front, where there is room
        slots = before[:, None] + torch.arange(step, device=before.device)
        last = self.words.gather(1, (slots - step).clamp(min=0))
        ids = torch.where(before[:, None] == 0, START, last)
        logits, factors = self._runner.call(self._extend, ids, before, self._cache, self._memory, self._layout)

        top, log_probability = self._choose(logits, factors, slots)
        ends = top == EOS
        # Up to and with the first EOS in the order of writing: no column after one that ends.
        written = (ends.long().cumsum(dim=1) - ends.long() == 0) & active[:, None]
        scored = active[:, None].expand_as(written) if self.search.count_dropped else written
        # Not a product: what is not written may be -inf.
        gained = torch.where(scored, log_probability, 0).sum(dim=1, dtype=torch.float64)
        self.log_probability += gained
        kept = self.words.gather(1, slots)
        self.words.scatter_(1, slots, torch.where(active[:, None], top, kept))
        self.length += (written & ~ends).sum(dim=1)
        self.filled += torch.where(active, step, 0)
        self.done |= active & ends.any(dim=1)
        if self.search.dedup:
            found = sentences_of(self.words, self.length, o, self.search.dedup)
            return closing_step(found, self.ticket, active, active & self.done)
        position = torch.where(ends, self._behind, self._anchors[slots])
        none = torch.zeros_like(self.ticket)
        return Step(self.ticket, active, position, top, written, none, none)

    def _choose(self, logits: Tensor, factors: Tensor | None, slots: Tensor) -> tuple[Tensor, Tensor]:
        """[rows, step] the best words for `slots`, each given its neighbour, and their log-probabilities"""
        if self._tie is None:
            return self._read(logits, slots)
        assert factors is not None
        h = self.options.h
        words, scores = self._read(logits[:, :h], slots[:, :h])
        every = [(words, scores)]
        for first in range(h, self.options.step, h):
            here = slice(first, first + h)
            given = self._runner.call(self._tie, logits[:, here], factors[:, here], words)
            words, scores = self._read(given, slots[:, here])
            every.append((words, scores))
        return torch.cat([words for words, _ in every], dim=1), torch.cat([scores for _, scores in every], dim=1)

    def _read(self, logits: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
        reading = read(logits, slots, self._longest, self._never, self._earliest)
        return reading.top, reading.top_log_probability
