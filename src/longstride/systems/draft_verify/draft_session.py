"""The table of the drafter alone: every pass appends a block to every row, cut after its first EOS. Nobody verifies."""

from __future__ import annotations

import torch
from torch import Tensor

from longstride.contract import EOS, Finished, Hypothesis, Limits, Runner, Session, Source, Step
from longstride.systems.draft_verify.drafter import ModelDrafter
from longstride.verification.drafting import View


class DraftSession(Session):
    """One drafter, `capacity` rows."""

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
        self._tokens = torch.zeros(capacity, columns, dtype=torch.int64, device=device)
        self._length = torch.zeros(capacity, dtype=torch.int64, device=device)
        self._done = torch.ones(capacity, dtype=torch.bool, device=device)
        self._log_probability = torch.zeros(capacity, dtype=torch.float64, device=device)
        self._ticket = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        self._held: list[int | None] = [None] * capacity  # the host's own copy: which ticket is where
        self._next_ticket = 0

    @property
    def free(self) -> int:
        """How many rows are empty."""
        return self._held.count(None)

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Encode new sentences and open a row for each."""
        empty = [row for row, held in enumerate(self._held) if held is None][: source.rows]
        tickets = list(range(self._next_ticket, self._next_ticket + source.rows))
        self._next_ticket += source.rows
        for row, ticket in zip(empty, tickets, strict=True):
            self._held[row] = ticket
        rows = torch.tensor(empty, device=self._device)
        ids = torch.nn.functional.pad(source.ids, (0, self._longest_source - source.longest))
        here = Source(ids.to(self._device), source.lengths.to(self._device))
        self._drafter.admit(self._state, rows, here, None)
        self.calls += 1
        self._length[rows] = 0
        self._done[rows] = False
        self._log_probability[rows] = 0.0
        self._ticket[rows] = torch.tensor(tickets, device=self._device)
        return tickets

    @torch.inference_mode()
    def advance(self) -> Step:
        """Append a block to every live row."""
        active = ~self._done
        before = torch.where(active, self._length, 0)
        reading = self._drafter.read(self._state, View(self._tokens, before, active), self._drafter.block)
        self.calls += 1
        ids = reading.top
        ends = ids == EOS
        # Up to and with the first EOS: no column after one that ends.
        written = (ends.long().cumsum(dim=1) - ends.long() == 0) & active[:, None]
        positions = before[:, None] + torch.arange(ids.shape[1], device=self._device)
        self._write(positions, ids, written, reading.top_log_probability)
        self._done = self._done | (active & ends.any(dim=1))
        drafted = torch.where(active, ids.shape[1], 0)
        return Step(self._ticket, active, positions, ids, written, drafted, written.sum(dim=1), draft=ids)

    def _write(self, positions: Tensor, ids: Tensor, written: Tensor, log_probability: Tensor) -> None:
        kept = self._tokens.gather(1, positions)
        self._tokens = self._tokens.scatter(1, positions, torch.where(written, ids, kept))
        self._length = self._length + written.sum(dim=1)
        self._log_probability = self._log_probability + torch.where(written, log_probability, 0).sum(dim=1)

    @torch.inference_mode()
    def take_finished(self) -> list[Finished]:
        """Read the flags of all rows, and the outputs of those that are done."""
        done = self._done.tolist()
        rows = [row for row, held in enumerate(self._held) if held is not None and done[row]]
        if not rows:
            return []
        index = torch.tensor(rows, device=self._device)
        tokens, lengths = self._tokens[index].tolist(), self._length[index].tolist()
        scores = self._log_probability[index].tolist()
        taken = []
        for row, ids, length, score in zip(rows, tokens, lengths, scores, strict=True):
            ticket = self._held[row]
            assert ticket is not None
            self._held[row] = None
            taken.append(Finished(ticket, [Hypothesis(ids[: length - 1], score, score)]))
        return taken
