"""The most likely words of a step, all at once: a table of rows that are written from all their ends.

Words lie in the order of writing, slot after slot. Without de-duplication every step is final when it is made; its
positions are then numbers in the order of the sentence, whose length nobody knows yet.
"""

from __future__ import annotations

import torch
from torch import Tensor

from longstride.contract import EOS, START, Finished, Hypothesis, Limits, Runner, Session, Source, Step
from longstride.contract.slots import Slots
from longstride.nn import programs
from longstride.search.length_penalty import LengthPenalty
from longstride.systems.interleaved.model import InterleavedModel
from longstride.systems.interleaved.orders import after_all, anchors
from longstride.systems.interleaved.programs import extend
from longstride.systems.interleaved.sentences import closing_step, sentences_of
from longstride.verification.reading import forbidden_ids, read


class GreedySession(Session):
    """One model, `capacity` rows."""

    @torch.inference_mode()
    def __init__(
        self,
        model: InterleavedModel,
        runner: Runner,
        penalty: LengthPenalty,
        count_dropped: bool,
        dedup: int,
        capacity: int,
        limits: Limits,
        longest_source: int,
    ) -> None:
        self.capacity = capacity
        self.calls = 0
        self._options = model.options
        self._runner = runner
        self._penalty = penalty
        self._count_dropped = count_dropped
        self._dedup = dedup
        self._limits = limits
        self._earliest = max(limits.min_length, self._options.step if count_dropped else 0)
        self._remember = programs.remember(model.model)
        self._extend = extend(model)

        device = runner.device
        self._room = int(limits.longest_outputs(torch.tensor(longest_source)))
        columns = self._room + self._options.step
        self._memory = model.model.new_memory(capacity, longest_source)
        self._cache = model.model.new_cache(capacity, columns)
        self._forbidden = forbidden_ids(limits, device)
        self._words = torch.zeros(capacity, columns, dtype=torch.int64, device=device)
        self._filled = torch.zeros(capacity, dtype=torch.int64, device=device)
        self._length = torch.zeros(capacity, dtype=torch.int64, device=device)
        self._longest = torch.zeros(capacity, dtype=torch.int64, device=device)
        self._log_probability = torch.zeros(capacity, dtype=torch.float64, device=device)
        self._done = torch.ones(capacity, dtype=torch.bool, device=device)
        self._ticket = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        self._slots = Slots(capacity)

    @property
    def free(self) -> int:
        """How many rows are empty."""
        return self._slots.free

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Encode new sentences together and open a row for each."""
        empty, tickets = self._slots.take(source.rows)
        device = self._runner.device
        rows = torch.tensor(empty, device=device)
        self._memory.put(rows, self._runner.call(self._remember, source.ids.to(device), source.lengths.to(device)))
        self.calls += 1
        self._filled[rows] = 0
        self._length[rows] = 0
        self._log_probability[rows] = 0.0
        self._longest[rows] = self._limits.longest_outputs(source.lengths).to(device)
        self._done[rows] = False
        self._ticket[rows] = torch.tensor(tickets, device=device)
        return tickets

    @torch.inference_mode()
    def advance(self) -> Step:
        """One step of every live row."""
        step = self._options.step
        active = ~self._done
        before = torch.where(active, self._filled, 0)  # idle rows idle at the front, where there is room
        columns = torch.arange(step, device=before.device)
        slots = before[:, None] + columns
        last = self._words.gather(1, (slots - step).clamp(min=0))
        ids = torch.where(before[:, None] == 0, START, last)
        logits = self._runner.call(self._extend, ids, before, self._cache, self._memory)
        self.calls += 1

        reading = read(logits, slots, self._longest, self._forbidden, self._earliest)
        ends = reading.top == EOS
        # Up to and with the first EOS in the order of writing: no column after one that ends.
        written = (ends.long().cumsum(dim=1) - ends.long() == 0) & active[:, None]
        words = (written & ~ends).sum(dim=1)
        scored = active[:, None].expand_as(written) if self._count_dropped else written
        # Not a product: what is not written may be -inf.
        gained = torch.where(scored, reading.top_log_probability, 0).sum(dim=1, dtype=torch.float64)
        self._log_probability = self._log_probability + gained
        kept = self._words.gather(1, slots)
        self._words = self._words.scatter(1, slots, torch.where(active[:, None], reading.top, kept))
        self._length = self._length + words
        self._filled = torch.where(active, self._filled + step, self._filled)
        self._done = self._done | (active & ends.any(dim=1))
        if self._dedup:
            found = sentences_of(self._words, self._length, self._options, self._dedup)
            return closing_step(found, self._ticket, active, active & self._done)
        return self._step(active, slots, reading.top, written)

    def _step(self, active: Tensor, slots: Tensor, ids: Tensor, written: Tensor) -> Step:
        o = self._options
        position = torch.where(ids == EOS, after_all(self._room, o.h), anchors(slots, self._room, o.h, o.order))
        none = torch.zeros_like(self._ticket)
        return Step(self._ticket, active, position, ids, written, none, none)

    @torch.inference_mode()
    def take_finished(self) -> list[Finished]:
        """Read the flags of all rows, and the outputs of those that are done."""
        ready = self._slots.ready(self._done.tolist())
        if not ready:
            return []
        rows = torch.tensor(ready, device=self._runner.device)
        found = sentences_of(self._words[rows], self._length[rows], self._options, self._dedup)
        counted = self._filled[rows] if self._count_dropped else self._length[rows] + 1
        total = self._log_probability[rows]
        scores, totals = (total / self._penalty(counted)).tolist(), total.tolist()
        tokens, lengths = found.tokens.tolist(), found.lengths.tolist()
        return [
            Finished(self._slots.release(row), [Hypothesis(tokens[at][: lengths[at]], scores[at], totals[at])])
            for at, row in enumerate(ready)
        ]
