"""Beam search over a table of slots: `width` hypotheses a sentence, one model or several averaged.

All rows of the table are hypotheses; those of one sentence lie side by side and share its memory. Caches follow their
hypotheses by reordering, and only as many slots of them are looked at as the longest live hypothesis has written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from longstride.contract import EOS, START, Finished, Hypothesis, Limits, Runner, Session, Source, Step
from longstride.contract.slots import Slots
from longstride.nn import programs
from longstride.nn.cache import aligned
from longstride.nn.transformer import Transformer
from longstride.search import beam
from longstride.search.length_penalty import LengthPenalty
from longstride.verification.reading import forbidden_ids


class BeamSession(Session):
    """`capacity` sentences of `width` hypotheses."""

    @torch.inference_mode()
    def __init__(
        self,
        models: Sequence[Transformer],
        runner: Runner,
        width: int,
        penalty: LengthPenalty,
        n_best: int,
        capacity: int,
        limits: Limits,
        longest_source: int,
    ) -> None:
        self.capacity = capacity
        self.calls = 0
        self._runner = runner
        self._width = width
        self._penalty = penalty
        self._n_best = n_best
        self._limits = limits
        self._longest_source = longest_source
        self._remember = [programs.remember(model) for model in models]
        self._extend = [programs.extend(model) for model in models]

        device = runner.device
        longest = int(limits.longest_outputs(torch.tensor(longest_source)))
        self._memories = [model.new_memory(capacity, longest_source) for model in models]
        self._caches = [model.new_cache(capacity * width, 1) for model in models]
        self._table = beam.BeamTable.empty(capacity, width, longest + 1, device)
        self._last = torch.full((capacity, width), START, dtype=torch.int64, device=device)
        self._forbidden = forbidden_ids(limits, device)
        self._ticket = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        self._slots = Slots(capacity)
        self._age = [
            0
        ] * capacity  # how many tokens the live hypotheses of a slot have, known without asking the device

    @property
    def free(self) -> int:
        """How many slots are empty."""
        return self._slots.free

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Encode new sentences together and open a search for each."""
        empty, tickets = self._slots.take(source.rows)
        for slot in empty:
            self._age[slot] = 0
        device = self._runner.device
        slots = torch.tensor(empty, device=device)
        for remember, memory in zip(self._remember, self._memories, strict=True):
            encoded = self._runner.call(remember, source.ids.to(device), source.lengths.to(device))
            memory.put(slots, encoded)
            self.calls += 1
        self._table.open(slots, self._limits.longest_outputs(source.lengths).to(device))
        self._last[slots] = START
        self._ticket[slots] = torch.tensor(tickets, device=device)
        return tickets

    @torch.inference_mode()
    def advance(self) -> Step:
        """One token for every live hypothesis."""
        table = self._table
        active = ~table.done
        slots, width = table.live.shape
        needed = 1 + max(
            (age for age, held in zip(self._age, self._slots.held, strict=True) if held is not None), default=0
        )
        span = aligned(needed)
        candidates = self._score(span)
        parents, self._last = beam.advance(table, candidates, self._penalty, self._n_best)
        rows = (torch.arange(slots, device=parents.device)[:, None] * width + parents).view(-1)
        for cache in self._caches:
            cache.reorder(rows, span)
        self._age = [age + 1 for age in self._age]
        return self._step(active)

    def _score(self, span: int) -> beam.Candidates:
        table = self._table
        slots, width = table.live.shape
        start = torch.where(table.done, 0, table.length).repeat_interleave(width)
        ids = self._last.view(-1, 1)
        every = []
        for extend, cache, memory in zip(self._extend, self._caches, self._memories, strict=True):
            cache.grow(span)
            logits = self._runner.call(extend, ids, start, cache, memory, span)[:, 0]
            self.calls += 1
            wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
            every.append(logits.log_softmax(dim=-1, dtype=wide))
        # The mean of the models' probabilities.
        scores = every[0] if len(every) == 1 else torch.stack(every).logsumexp(dim=0).sub_(math.log(len(every)))
        end = scores[:, EOS].double()
        scores.index_fill_(-1, self._forbidden, beam.DEAD)
        if self._limits.min_length:
            scores[:, EOS] = torch.where(start < self._limits.min_length, beam.DEAD, scores[:, EOS])
        best, picked = _topk(scores, 2 * width)
        shape = (slots, width, 2 * width)
        return beam.Candidates(picked.view(shape), best.double().view(shape), end.view(slots, width))

    def _step(self, active: Tensor) -> Step:
        """The whole output is written when its search ends."""
        table = self._table
        best = beam.final_scores(table, self._penalty).argmax(dim=1, keepdim=True)
        length = table.finished_length.gather(1, best)
        tokens = table.finished_tokens.gather(1, best[..., None].expand(-1, 1, table.tokens.shape[2]))[:, 0]
        columns = torch.arange(tokens.shape[1], device=tokens.device)
        ids = torch.where(columns < length, tokens, EOS)
        written = (columns <= length) & (active & table.done)[:, None]
        none = torch.zeros_like(self._ticket)
        return Step(self._ticket, active, columns.expand_as(ids), ids, written, none, none, calls=len(self._extend))

    @torch.inference_mode()
    def take_finished(self) -> list[Finished]:
        """Read the flags of all slots, and the hypotheses of those that are done."""
        ready = self._slots.ready(self._table.done.tolist())
        if not ready:
            return []
        index = torch.tensor(ready, device=self._runner.device)
        ranked = beam.final_scores(self._table, self._penalty)[index]
        order = ranked.argsort(dim=1, descending=True, stable=True)[:, : self._n_best]
        scores = ranked.gather(1, order).tolist()
        log_probabilities = self._table.finished[index].gather(1, order).tolist()
        lengths = self._table.finished_length[index].gather(1, order).tolist()
        outputs = self._table.finished_tokens[index]
        tokens = outputs.gather(1, order[..., None].expand(-1, -1, outputs.shape[2])).tolist()
        taken = []
        for row, slot in enumerate(ready):
            found = zip(tokens[row], lengths[row], scores[row], log_probabilities[row], strict=True)
            hypotheses = [
                Hypothesis(ids[:length], score, log_probability)
                for ids, length, score, log_probability in found
                if score > beam.DEAD
            ]
            taken.append(Finished(self._slots.release(slot), hypotheses))
        return taken

    @torch.inference_mode()
    def settle(self) -> None:
        """Drop empty slots once half of the table is empty, so that finished sentences stop costing."""
        held = self._slots.held
        kept = [slot for slot, ticket in enumerate(held) if ticket is not None]
        if not kept or len(kept) * 2 > len(held):
            return
        slots = torch.tensor(kept, device=self._runner.device)
        rows = (slots[:, None] * self._width + torch.arange(self._width, device=slots.device)).view(-1)
        for cache in self._caches:
            cache.keep(rows)
        self._memories = [memory.select(slots) for memory in self._memories]
        self._table = self._table.select(slots)
        self._last = self._last[slots]
        self._ticket = self._ticket[slots]
        self._slots.keep(kept)
        self._age = [self._age[slot] for slot in kept]
        self.capacity = len(kept)


def _topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best per row; a vocabulary smaller than k is filled up with dead entries."""
    missing = k - scores.shape[-1]
    if missing > 0:
        scores = torch.nn.functional.pad(scores, (0, missing), value=beam.DEAD)
    best, picked = scores.topk(k, dim=-1)
    return best, picked
