"""The drafter alone, slowly: the twin of its session, whose tensors are made anew and which nobody can record."""

from __future__ import annotations

import torch

from longstride.contract import EOS, Finished, Limits, Runner, Session, Source, Step
from longstride.engine.outputs import Outputs
from longstride.engine.pool import Slots
from longstride.systems.draft_verify.decoder import Draft
from longstride.systems.draft_verify.drafter import ModelDrafter
from longstride.verification.acceptance import forbidden_ids
from longstride.verification.drafting import View


class SlowDraftSession(Session):
    """Every pass appends a block to every row, cut after its first EOS."""

    @torch.inference_mode()
    def __init__(
        self, drafter: ModelDrafter, runner: Runner, capacity: int, limits: Limits, longest_source: int
    ) -> None:
        self.capacity = capacity
        self.calls = 0
        self._drafter = drafter
        self._longest_source = longest_source
        self._device = device = runner.device
        columns = int(limits.longest_outputs(torch.tensor(longest_source))) + 1 + drafter.block
        self._state = drafter.begin(capacity, longest_source, columns, device)
        self._outputs = Outputs(capacity, columns, device)
        self._limits = limits
        self._longest = torch.zeros(capacity, dtype=torch.int64, device=device)
        self._ticket = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        self._slots = Slots(capacity)

    @property
    def free(self) -> int:
        """How many rows are empty."""
        return self._slots.free

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Encode new sentences and open a row for each."""
        empty, tickets = self._slots.take(source.rows)
        rows = torch.tensor(empty, device=self._device)
        ids = torch.nn.functional.pad(source.ids, (0, self._longest_source - source.longest))
        here = Source(ids.to(self._device), source.lengths.to(self._device))
        self._drafter.admit(self._state, rows, here, None)
        self.calls += 1
        self._outputs.open(rows)
        self._longest[rows] = self._limits.longest_outputs(here.lengths)
        self._ticket[rows] = torch.tensor(tickets, device=self._device)
        return tickets

    @torch.inference_mode()
    def advance(self) -> Step:
        """Append a block to every live row."""
        outputs = self._outputs
        active = ~outputs.done
        before = torch.where(active, outputs.length, 0)
        rows, forbidden = outputs.rows, forbidden_ids(self._limits, self._device)
        view = View(rows.tokens, before, rows.newest, rows.done, self._longest, forbidden)
        reading = self._drafter.choose(self._state, view, self._drafter.block)
        self.calls += 1
        ids = reading.top
        ends = ids == EOS
        # Up to and with the first EOS: no column after one that ends.
        written = (ends.long().cumsum(dim=1) - ends.long() == 0) & active[:, None]
        positions = before[:, None] + torch.arange(ids.shape[1], device=self._device)
        outputs.write(positions, ids, written, reading.top_log_probability)
        rows.done.logical_or_(active & ends.any(dim=1))
        none = torch.zeros_like(before)  # written, not drafted
        return Step(self._ticket, active, positions, ids, written, none, none)

    @torch.inference_mode()
    def take_finished(self) -> list[Finished]:
        """Read the flags of all rows, and the outputs of those that are done."""
        return self._outputs.take_finished(self._slots)

    def cancel(self, ticket: int) -> None:
        """Its row idles until another sentence takes it."""
        slot = self._slots.slot_of(ticket)
        self._outputs.done[slot] = True
        self._slots.release(slot)


class SlowDraft(Draft):
    """The decoder with such sessions."""

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty table."""
        return SlowDraftSession(self._drafters(limits), self._runner, capacity, limits, longest_source)
