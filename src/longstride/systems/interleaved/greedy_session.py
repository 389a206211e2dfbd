"""Greedy search: the host's side of it. What changes lies in a table (`greedy_table`)."""

from __future__ import annotations

from functools import lru_cache, partial

import torch

from longstride.contract import Finished, Hypothesis, Limits, Source, Step
from longstride.search.length_penalty import LengthPenalty
from longstride.systems.interleaved.greedy_table import GreedyTable
from longstride.systems.interleaved.model import InterleavedModel
from longstride.systems.interleaved.sentences import sentence_of
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
        """Read the flags of all rows, and the outputs of those that are done: one copy for all of it."""
        table, search = self.table, self.table.search
        seen = table.rows.look()
        done = seen.done
        ready = self._slots.ready(done) if True in done else []
        taken = []
        for row in ready:
            words, filled, total = seen.of(row)
            counted = filled if search.count_dropped else len(words) + 1
            score = total / _divisor(search.penalty, counted)
            tokens = sentence_of(words, table.options, search.dedup)
            taken.append(Finished(self._slots.release(row), [Hypothesis(tokens, score, total)]))
        return taken


@lru_cache(maxsize=4096)
def _divisor(penalty: LengthPenalty, counted: int) -> float:
    return float(penalty(torch.tensor(counted)))
