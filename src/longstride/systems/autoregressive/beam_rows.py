"""What a beam session keeps on the device: caches, memories and the hypotheses of every sentence, and a step of them.

All rows are hypotheses; those of one sentence lie side by side and share its memory. Caches follow their hypotheses by
reordering, and only as many slots of them are looked at as the longest live hypothesis has written.

Where the runner records, all tensors stay where they are and have their full size from the start; elsewhere caches grow
as hypotheses do, and empty places can be dropped. Knows no tickets beyond their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from longstride.contract import EOS, START, Limits, Runner, Source
from longstride.nn import programs
from longstride.nn.cache import aligned
from longstride.nn.transformer import Transformer
from longstride.search import beam
from longstride.search.length_penalty import LengthPenalty
from longstride.verification.arrivals import Arrivals, Entrance
from longstride.verification.reading import forbidden_ids

SHORTEST_SPAN = 64
"""Where every span is recorded by itself, none is shorter."""


@dataclass(frozen=True)
class Search:
    """How hypotheses are ranked."""

    width: int
    penalty: LengthPenalty
    n_best: int


@dataclass(frozen=True)
class Written:
    """The sentences that a step ended, in the terms of :class:`longstride.contract.Step`."""

    active: Tensor
    positions: Tensor
    ids: Tensor
    written: Tensor


class BeamRows:
    """`capacity` sentences of `search.width` hypotheses."""

    def __init__(
        self,
        models: Sequence[Transformer],
        runner: Runner,
        search: Search,
        limits: Limits,
        capacity: int,
        longest_source: int,
    ) -> None:
        self._runner = runner
        self._search = search
        self._limits = limits
        self._remember = [programs.remember(model) for model in models]
        self._extend = [programs.extend(model) for model in models]
        device, width = runner.device, search.width
        longest = int(limits.longest_outputs(torch.tensor(longest_source)))
        self.steady = runner.records
        self._memories = [model.new_memory(capacity, longest_source) for model in models]
        self._caches = [model.new_cache(capacity * width, longest + 1 if self.steady else 1) for model in models]
        self.hypotheses = beam.BeamTable.empty(capacity, width, longest + 1, device)
        self._last = torch.full((capacity, width), START, dtype=torch.int64, device=device)
        self._forbidden = forbidden_ids(limits, device)
        self.ticket = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        self._longest_source = longest_source
        self._entrance = Entrance(runner, capacity, longest_source, self._enter, lambda: self.buffers)
        self._stepping: dict[int, Callable[[], Written]] = {}

    @property
    def buffers(self) -> list[Tensor]:
        """All that a step or an entrance writes."""
        own = [*self.hypotheses.buffers, self._last, self.ticket]
        memories = [buffer for memory in self._memories for buffer in memory.buffers]
        return [*own, *memories, *(buffer for cache in self._caches for buffer in cache.buffers)]

    @property
    def recordings(self) -> int:
        """How many steps and entrances were recorded."""
        return len(self._stepping) + self._entrance.recordings if self.steady else 0

    @property
    def nbytes(self) -> int:
        """What the tensors take that stay."""
        return sum(buffer.nbytes for buffer in self.buffers)

    # --- new sentences -----------------------------------------------------------------------------------------------

    def admit(self, source: Source, slots: list[int], tickets: list[int]) -> int:
        """Encode new sentences and open a search for each; how many times the encoders were called."""
        return len(self._remember) * self._entrance.admit(source, slots, tickets)

    def _enter(self, arrivals: Arrivals, count: int) -> None:
        slots = arrivals.rows[:count]
        for remember, memory in zip(self._remember, self._memories, strict=True):
            memory.put(slots, self._runner.call(remember, arrivals.ids, arrivals.lengths).first(count))
        self.hypotheses.open(slots, self._limits.longest_outputs(arrivals.lengths[:count]))
        self._last.index_fill_(0, slots, START)
        self.ticket.index_copy_(0, slots, arrivals.tickets[:count])

    # --- a step ------------------------------------------------------------------------------------------------------

    def step(self, needed: int) -> Written:
        """One token for every live hypothesis, of which none has more than `needed` slots, this one counted."""
        if not self.steady:
            return self._step(aligned(needed))
        span = min(self._caches[0].longest, self._runner.room(needed, SHORTEST_SPAN))
        if span not in self._stepping:
            for cache in self._caches:
                cache.prepare(span)
            step = partial(self._step, span)
            self._stepping[span] = self._runner.record(f"beam {span}", step, self.buffers, alone=True)
        return self._stepping[span]()

    def _step(self, span: int) -> Written:
        active = ~self.hypotheses.done
        table = replace(self.hypotheses)
        parents, last = beam.advance(table, self._score(span), self._search.penalty, self._search.n_best)
        first = torch.arange(len(parents), device=parents.device)[:, None] * self._search.width
        rows = (first + parents).view(-1)
        if self.steady:
            self.hypotheses.become(table)
            self._last.copy_(last)
        else:
            self.hypotheses, self._last = table, last
        for cache in self._caches:
            if self.steady:
                cache.shuffle(rows, span)
            else:
                cache.reorder(rows, span)
        return self._written(active)

    def _score(self, span: int) -> beam.Candidates:
        table, width = self.hypotheses, self._search.width
        start = torch.where(table.done, 0, table.length).repeat_interleave(width)
        ids = self._last.view(-1, 1)
        every = []
        for extend, cache, memory in zip(self._extend, self._caches, self._memories, strict=True):
            cache.grow(span)
            logits = self._runner.call(extend, ids, start, cache, memory, span)[:, 0]
            wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
            every.append(logits.log_softmax(dim=-1, dtype=wide))
        # The mean of the models' probabilities.
        scores = every[0] if len(every) == 1 else torch.stack(every).logsumexp(dim=0).sub_(math.log(len(every)))
        end = scores[:, EOS].double()
        scores.index_fill_(-1, self._forbidden, beam.DEAD)
        if self._limits.min_length:
            scores[:, EOS] = torch.where(start < self._limits.min_length, beam.DEAD, scores[:, EOS])
        best, picked = _topk(scores, 2 * width)
        shape = (*table.live.shape, 2 * width)
        return beam.Candidates(picked.view(shape), best.double().view(shape), end.view(table.live.shape))

    def _written(self, active: Tensor) -> Written:
        """The whole output is written when its search ends."""
        table = self.hypotheses
        best = beam.final_scores(table, self._search.penalty).argmax(dim=1, keepdim=True)
        length = table.finished_length.gather(1, best)
        tokens = table.finished_tokens.gather(1, best[..., None].expand(-1, 1, table.tokens.shape[2]))[:, 0]
        columns = torch.arange(tokens.shape[1], device=tokens.device)
        ids = torch.where(columns < length, tokens, EOS)
        written = (columns <= length) & (active & table.done)[:, None]
        return Written(active, columns.expand_as(ids), ids, written)

    # --- fewer sentences ---------------------------------------------------------------------------------------------

    def keep(self, slots: Tensor) -> None:
        """Drop all sentences but these [n]; not where steps are recorded."""
        width = self._search.width
        rows = (slots[:, None] * width + torch.arange(width, device=slots.device)).view(-1)
        for cache in self._caches:
            cache.keep(rows)
        self._memories = [memory.select(slots) for memory in self._memories]
        self.hypotheses = self.hypotheses.select(slots)
        self._last = self._last[slots]
        self.ticket = self.ticket[slots]


def _topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best per row; a vocabulary smaller than k is filled up with dead entries."""
    missing = k - scores.shape[-1]
    if missing > 0:
        scores = torch.nn.functional.pad(scores, (0, missing), value=beam.DEAD)
    best, picked = scores.topk(k, dim=-1)
    return best, picked
