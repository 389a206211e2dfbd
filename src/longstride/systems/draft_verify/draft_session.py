"""The drafter alone: the host's side of it. What changes lies in a table (`draft_table`)."""

from __future__ import annotations

from functools import partial

import torch

from longstride.contract import Finished, Limits, Source, Step
from longstride.engine.pool import PooledSession, PoolKey
from longstride.systems.draft_verify.draft_table import DraftTable
from longstride.systems.draft_verify.drafter import ModelDrafter


class DraftSession(PooledSession[DraftTable]):
    """One drafter, `capacity` rows."""

    @torch.inference_mode()
    def __init__(self, key: PoolKey, drafter: ModelDrafter, limits: Limits) -> None:
        super().__init__(key, partial(DraftTable, drafter, key.runner, limits))
        self._first = True  # no row has a token yet
        self._none = torch.zeros_like(self.table.outputs.rows.length)

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Encode new sentences and open a row for each."""
        self._first |= self._slots.free == self.capacity
        rows, tickets = self._slots.take(source.rows)
        self.calls += self.table.admit(source, rows, tickets)
        return tickets

    @torch.inference_mode()
    def advance(self) -> Step:
        """Append a block to every live row: written, not drafted, since nobody verifies it."""
        table = self.table
        found = table.iterate(self._first)
        self._first = False
        self.calls += 1
        return Step(table.ticket, found.active, found.positions, found.ids, found.written, self._none, self._none)

    @torch.inference_mode()
    def take_finished(self) -> list[Finished]:
        """Look at how all rows stand, in one copy, and take the outputs of those that are done."""
        return self.table.outputs.take_finished(self._slots)
