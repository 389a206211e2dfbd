"""A beam session's table for a single sentence on a processor: what :mod:`beam_rows` does, with plain numbers between
two model calls.

All that a model call reads stays where it is, so that a runner binds it once: caches have their full size from the
start and follow their hypotheses in place. The vocabulary is read row by row, which PyTorch does by one thread: its
others, woken for so little, would wait busily on the cores of the next model call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from longstride.contract import EOS, PAD, START, Hypothesis, Limits, Runner, Source
from longstride.nn import programs
from longstride.nn.transformer import Transformer
from longstride.ops import aligned
from longstride.search.beam import DEAD
from longstride.search.lone_beam import Continuations, LoneBeam
from longstride.systems.autoregressive import beam_reading
from longstride.systems.autoregressive.beam_rows import Search, Written
from longstride.verification.arrivals import Arrivals
from longstride.verification.reading import forbidden_ids

MARGIN = 1e-3
"""Far more than comparing sums of log-probabilities in float32 can be wrong by."""


def alone(runner: Runner, capacity: int) -> bool:
    """Whether such a table will do: one sentence, and a host that may look at numbers."""
    return capacity == 1 and runner.device.type == "cpu" and not runner.records


class LoneRows:
    """One sentence of `search.width` hypotheses, a row of the caches each."""

    steady = True
    """whoever wants a table like this one may have it: what it holds of earlier sentences is hidden"""
    recordings = 0

    def __init__(
        self,
        models: Sequence[Transformer],
        runner: Runner,
        search: Search,
        limits: Limits,
        capacity: int,
        longest_source: int,
    ) -> None:
        assert alone(runner, capacity)
        self._runner, self._limits, width = runner, limits, search.width
        longest_of = limits.longest_outputs(torch.arange(longest_source + 1)).tolist()
        columns = max(longest_of) + 1
        self._longest_of: list[int] = longest_of
        divisors = search.penalty(torch.arange(columns + 2)).tolist()
        self._beam = LoneBeam(width, search.n_best, divisors)
        self._memories = [model.new_memory(1, longest_source) for model in models]
        self._caches = [model.new_cache(width, columns) for model in models]
        self._arrivals = Arrivals(1, longest_source, runner)
        self._encode_source = [
            runner.bound(programs.encode_source(m), self._arrivals.ids, self._arrivals.lengths) for m in models
        ]
        self._extend = [programs.extend(model) for model in models]
        self._calls: dict[int, list[Callable[[], Tensor]]] = {}
        self._forbidden = forbidden_ids(limits, runner.device)
        self._ids = torch.full((width, 1), START, dtype=torch.int64)
        self._start = torch.zeros(width, dtype=torch.int64)
        self.ticket = torch.full((1,), -1, dtype=torch.int64)
        active, ids = torch.zeros(1, dtype=torch.bool), torch.full((1, columns), EOS, dtype=torch.int64)
        self._written = Written(active, torch.arange(columns)[None], ids, torch.zeros(1, columns, dtype=torch.bool))
        # The same memory, for numbers: a tensor takes ten times as long to write one.
        self._numbers = tuple(one.numpy() for one in (self._ids, self._start, active, ids, self._written.written))

    @property
    def nbytes(self) -> int:
        """What the tensors take that stay."""
        memories = [buffer for memory in self._memories for buffer in memory.buffers]
        return sum(buffer.nbytes for buffer in (*memories, *(b for cache in self._caches for b in cache.buffers)))

    # --- a new sentence ----------------------------------------------------------------------------------------------

    def admit(self, source: Source, slots: list[int], tickets: list[int]) -> int:
        """Encode a sentence and open its search; how many times encoders were called."""
        self._arrivals.send(source, slots, tickets)
        for encode_source, memory in zip(self._encode_source, self._memories, strict=True):
            memory.put(slice(None), encode_source())
        self._beam.open(self._longest_of[int(source.lengths[0])])
        ids, start, _, _, written = self._numbers
        ids[:], start[:], written[:] = START, 0, False
        self.ticket[0] = tickets[0]
        return len(self._encode_source)

    # --- a step ------------------------------------------------------------------------------------------------------

    def step(self, needed: int) -> Written:
        """One token for every live hypothesis, of which none has more than `needed` slots, this one counted."""
        beam, (ids, start, active, told, written) = self._beam, self._numbers
        active[0] = searching = not beam.done
        if not searching:
            written[:] = False
            return self._written
        parents = beam.advance(self._score(aligned(needed)))
        moved = [row for row, parent in enumerate(parents) if row != parent]
        if beam.done:
            best = beam.outputs()[:1]
            tokens = best[0].tokens if best else []
            told[0, : len(tokens)], told[0, len(tokens) :] = tokens, EOS
            written[0, : len(tokens) + 1] = True
        elif moved:
            for cache in self._caches:
                cache.move(moved, [parents[row] for row in moved], beam.length)
        ids[: len(parents), 0] = [tokens[-1] for tokens in beam.tokens]
        ids[len(parents) :] = PAD
        start[:] = beam.length
        return self._written

    def _score(self, span: int) -> list[Continuations]:
        """The best continuations of every live hypothesis."""
        every = [call()[:, 0] for call in self._bound(span)]
        beam, min_length = self._beam, self._limits.min_length
        count, live = 2 * beam.width, len(beam.live)
        if len(every) == 1:
            return self._read(every[0].unbind()[:live], beam.length < min_length, count)
        found = beam_reading.candidates(every, self._start, self._forbidden, min_length, (1, beam.width))
        listed = (one[0, :live].tolist() for one in (found.ids, found.log_probabilities, found.end))
        return [Continuations(*one) for one in zip(*listed, strict=True)]

    def _read(self, rows: Sequence[Tensor], early: bool, count: int) -> list[Continuations]:
        """Row by row, by logits [vocabulary] each: of later ones only what `count` earlier continuations leave open."""
        every, reached = [], [DEAD] * count
        for so_far, row in zip(self._beam.live, rows, strict=True):
            found = beam_reading.of_row(row, self._forbidden, early, count, reached[-1] - so_far - MARGIN)
            every.append(Continuations(*found))
            reached = sorted([*reached, *(so_far + gained for gained in found[1])], reverse=True)[:count]
        return every

    def _bound(self, span: int) -> list[Callable[[], Tensor]]:
        # A graph finds out by itself how many slots to look at, whatever the span.
        span = self._caches[0].longest if self._runner.binds else span
        if span not in self._calls:
            parts = zip(self._extend, self._caches, self._memories, strict=True)
            self._calls[span] = [self._runner.bound(e, self._ids, self._start, c, m, span) for e, c, m in parts]
        return self._calls[span]

    # --- what comes out ----------------------------------------------------------------------------------------------

    def done(self) -> list[bool]:
        """Whether the search has ended or there is none."""
        return [self._beam.done]

    def outputs(self, slots: list[int]) -> list[list[Hypothesis]]:
        """What was found, best first."""
        return [self._beam.outputs() for _ in slots]

    def keep(self, slots: Tensor) -> None:
        """One sentence is as few as there can be."""
