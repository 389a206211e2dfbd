"""Greedy search: the host's side of it. What changes lies in a table (`greedy_table`)."""

from __future__ import annotations

from functools import partial

import torch

from longstride.contract import Finished, Hypothesis, Limits, Runner, Session, Source, Step
from longstride.contract.slots import Slots
from longstride.systems.interleaved.greedy_table import GreedyTable
from longstride.systems.interleaved.model import InterleavedModel
from longstride.systems.interleaved.sentences import sentences_of
from longstride.systems.interleaved.table import Search
from longstride.verification.lease import Lease


class GreedySession(Session):
    """One model, `capacity` rows."""

    @torch.inference_mode()
    def __init__(
        self,
        model: InterleavedModel,
        runner: Runner,
        search: Search,
        capacity: int,
        limits: Limits,
        longest_source: int,
    ) -> None:
        self.calls = 0
        self._runner = runner
        family = ("interleaved", model.model, model.interleaving, search, limits)
        self._lease = Lease.of(runner, family, capacity, longest_source, model.model.options.longest)
        self._table = self._lease.borrow(partial(GreedyTable, model, runner, search, limits))
        self.capacity = self._lease.capacity
        self._slots = Slots(self.capacity)

    @property
    def free(self) -> int:
        """How many rows are empty."""
        return self._slots.free

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Encode new sentences and open a row for each."""
        empty, tickets = self._slots.take(source.rows)
        self.calls += self._table.admit(source, empty, tickets)
        return tickets

    @torch.inference_mode()
    def advance(self) -> Step:
        """One step of every live row."""
        self.calls += 1
        return self._table.step()

    @torch.inference_mode()
    def take_finished(self) -> list[Finished]:
        """Read the flags of all rows, and the outputs of those that are done."""
        table, search = self._table, self._table.search
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

    def close(self) -> None:
        """Leave the table to the next session that wants one like it."""
        self._lease.give_back(self._table, self._slots)
