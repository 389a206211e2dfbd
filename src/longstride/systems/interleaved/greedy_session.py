"""Greedy search: the host's side of it. What changes lies in a table (`greedy_table`)."""

from __future__ import annotations

from functools import partial

import torch

from longstride.contract import Finished, Hypothesis, Limits, Source, Step
from longstride.systems.interleaved.greedy_table import GreedyTable
from longstride.systems.interleaved.model import InterleavedModel
from longstride.systems.interleaved.sentences import sentences_of
from longstride.systems.interleaved.table import Search
from longstride.verification.lease import Lease, LeasedSession


class GreedySession(LeasedSession[GreedyTable]):
    """One model, `capacity` rows."""

    @torch.inference_mode()
    def __init__(self, lease: Lease, model: InterleavedModel, search: Search, limits: Limits) -> None:
        super().__init__(lease, partial(GreedyTable, model, lease.runner, search, limits))

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Encode new sentences and open a row for each."""
        empty, tickets = self._slots.take(source.rows)
        self.calls += self.table.admit(source, empty, tickets)
        return tickets

    @torch.inference_mode()
    def advance(self) -> Step:
        """One step of every live row."""
        self.calls += 1
        return self.table.step()

    @torch.inference_mode()
    def take_finished(self) -> list[Finished]:
        """Read the flags of all rows, and the outputs of those that are done."""
        table, search = self.table, self.table.search
        ready = self._slots.ready(self._runner.fetch(table.done)[0].tolist())
        if not ready:
            return []
        fetched = self._runner.fetch(table.words, table.length, table.filled, table.log_probability)
        words, length, filled, total = (tensor[ready] for tensor in fetched)
        found = sentences_of(words, length, table.options, search.dedup)
        counted = filled if search.count_dropped else length + 1
        scores, totals = (total / search.penalty(counted)).tolist(), total.tolist()
        tokens, lengths = found.tokens.tolist(), found.lengths.tolist()
        return [
            Finished(self._slots.release(row), [Hypothesis(tokens[at][: lengths[at]], scores[at], totals[at])])
            for at, row in enumerate(ready)
        ]
