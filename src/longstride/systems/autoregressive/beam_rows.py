"""What a beam session keeps on the device: caches, memories and the hypotheses of every sentence, and a step of them.

All rows are hypotheses; those of one sentence lie side by side and share its memory. Where steps are kernels of our
own, caches stay as they were written: a small table, the indirection, says in which row each slot of a past lies,
and hypotheses change places there. Elsewhere caches follow their hypotheses by reordering, and only as many slots of
them are looked at as the longest live hypothesis has written.

Where the runner records, all tensors stay where they are and have their full size from the start; elsewhere caches grow
as hypotheses do, and empty places can be dropped. Knows no tickets beyond their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from longstride.contract import START, Hypothesis, Limits, Runner, Source
from longstride.nn import programs
from longstride.nn.transformer import Transformer
from longstride.ops import aligned
from longstride.search import beam
from longstride.search.length_penalty import LengthPenalty
from longstride.search.ranking import best_first, hypotheses
from longstride.systems.autoregressive import beam_reading
from longstride.systems.autoregressive.beam_fused import OwnSearch, usable
from longstride.systems.autoregressive.beam_seen import ENDED, Seen
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
        self._encode_source = [programs.encode_source(model) for model in models]
        self._extend = [programs.extend(model) for model in models]
        device, width = runner.device, search.width
        longest = int(limits.longest_outputs(torch.tensor(longest_source)))
        self.steady = runner.records
        self._memories = [model.new_memory(capacity, longest_source) for model in models]
        self._caches = [model.new_cache(capacity * width, longest + 1 if self.steady else 1) for model in models]
        self.hypotheses = beam.BeamTable.empty(capacity, width, longest + 1, device)
        self._seen = Seen(self.hypotheses) if self.steady else None
        self._last = torch.full((capacity, width), START, dtype=torch.int64, device=device)
        self._forbidden = forbidden_ids(limits, device)
        self._indirection = self._share_pasts() if self.steady and shares_pasts(runner, models) else None
        self._own: OwnSearch | None = None
        if self._indirection is not None and self._seen is not None and usable(runner, width):
            vocabulary, scores = models[0].options.vocabulary, self._seen.scores
            self._own = OwnSearch(self.hypotheses, scores, search.penalty, search.n_best, limits, vocabulary)
        self._columns = torch.arange(longest + 1, device=device).expand(capacity, -1)
        self.ticket = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        self._longest_source = longest_source
        self._entrance = Entrance(runner, capacity, longest_source, self._enter, lambda: self.buffers)
        self._stepping: dict[int, Callable[[], Written]] = {}

    def _share_pasts(self) -> Tensor:
        """[rows, slots of a cache] int32, one for all models: the row in which each slot of a hypothesis's past lies"""
        cache = self._caches[0]
        indirection = torch.zeros(cache.rows, cache.longest, dtype=torch.int32, device=self._runner.device)
        for cache in self._caches:
            cache.indirection = indirection
        return indirection

    @property
    def buffers(self) -> list[Tensor]:
        """All that a step or an entrance writes."""
        own = [*self.hypotheses.buffers, self._last, self.ticket]
        own += [] if self._indirection is None else [self._indirection]
        own += [] if self._own is None else [self._own.start, self._own.scores]
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
        return len(self._encode_source) * self._entrance.admit(source, slots, tickets)

    def _enter(self, arrivals: Arrivals, count: int) -> None:
        slots = arrivals.rows[:count]
        for encode_source, memory in zip(self._encode_source, self._memories, strict=True):
            memory.put(slots, self._runner.call(encode_source, arrivals.ids, arrivals.lengths).first(count))
        self.hypotheses.open(slots, self._limits.longest_outputs(arrivals.lengths[:count]))
        self._last.index_fill_(0, slots, START)
        self.ticket.index_copy_(0, slots, arrivals.tickets[:count])

    # --- a step ------------------------------------------------------------------------------------------------------

    def step(self, needed: int) -> Written:
        """One token for every live hypothesis, of which none has more than `needed` slots, this one counted."""
        if not self.steady:
            return self._step(aligned(needed))
        longest = self._caches[0].longest
        # Kernels that follow it look no further than a row has come, whatever the span.
        span = longest if self._indirection is not None else min(longest, self._runner.room(needed, SHORTEST_SPAN))
        if span not in self._stepping:
            for cache in self._caches:
                cache.prepare(span)
            step = partial(self._step, span)
            self._stepping[span] = self._runner.record(f"beam {span}", step, self.buffers)
        return self._stepping[span]()

    def _step(self, span: int) -> Written:
        if self._own is not None and self._indirection is not None:
            candidates = self._score(span, self._own.start)
            active, ids, written = self._own.advance(self.hypotheses, candidates, self._last, self._indirection)
            return Written(active, self._columns, ids, written)
        active = ~self.hypotheses.done
        table, width = replace(self.hypotheses), self._search.width
        start = torch.where(table.done, 0, table.length).repeat_interleave(width)
        parents, last = beam.advance(table, self._score(span, start), self._search.penalty, self._search.n_best)
        first = torch.arange(len(parents), device=parents.device)[:, None] * width
        rows = (first + parents).view(-1)
        if self.steady:
            self.hypotheses.become(table)
            self._last.copy_(last)
        else:
            self.hypotheses, self._last = table, last
        self._follow(rows, start, span)
        ids, written = beam_reading.told(self.hypotheses, self._search.penalty, active)
        return Written(active, self._columns, ids, written)

    def _score(self, span: int, start: Tensor) -> beam.Candidates:
        ids = self._last.view(-1, 1)
        every = []
        for extend, cache, memory in zip(self._extend, self._caches, self._memories, strict=True):
            cache.grow(span)
            every.append(self._runner.call(extend, ids, start, cache, memory, span)[:, 0])
        if self._own is not None and len(every) == 1:
            return self._own.candidates(every[0])
        slots, width = self.hypotheses.live.shape
        return beam_reading.candidates(every, start, self._forbidden, self._limits.min_length, (slots, width))

    def _follow(self, rows: Tensor, start: Tensor, span: int) -> None:
        """Hypotheses come from rows [rows] now, which have just written slots start [rows]."""
        if self._indirection is not None:
            moved = self._indirection.index_select(0, rows)
            self._indirection.copy_(moved.scatter_(1, start[:, None], rows[:, None].to(moved.dtype)))
            return
        for cache in self._caches:
            if self.steady:
                cache.shuffle(rows, span)
            else:
                cache.reorder(rows, span)

    # --- what the host sees ------------------------------------------------------------------------------------------

    def done(self) -> list[bool]:
        """Per slot, whether its search has ended or it is empty; waits for the device."""
        if self._seen is not None:
            return self._seen.done()
        return self._runner.fetch(self.hypotheses.done)[0].tolist()

    def outputs(self, slots: list[int]) -> list[list[Hypothesis]]:
        """What the searches in these slots, which are done, have found: of each the n best, best first."""
        ended = (tensor[slots] for tensor in self._finished())
        scores, totals, lengths, tokens = best_first(self._search.n_best, *ended)
        return hypotheses(tokens, lengths, scores, totals)

    def _finished(self) -> list[Tensor]:
        """Of finished hypotheses: scores, log-probabilities and lengths [slots, width], tokens [slots, width, columns].

        On the host, after waiting for the device; good until it is asked again, and where a search is done.
        """
        table = self.hypotheses
        if self._seen is not None:
            if self._own is None:
                self._seen.scores.copy_(beam.final_scores(table, self._search.penalty))
            return self._seen.finished()
        scores = beam.final_scores(table, self._search.penalty)
        return self._runner.fetch(scores, *(getattr(table, name) for name in ENDED))

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
        self._columns = self._columns[: len(slots)]


def shares_pasts(runner: Runner, models: Sequence[Transformer]) -> bool:
    """Whether steps of all models find a row's past in other rows by themselves."""
    options = [model.options for model in models]
    return all(o.scale_attention and o.positions != "relative" and runner.uses("lines", o.head_width) for o in options)
