"""The statistical model alone: the likeliest word at each place of a translation of the likeliest length.

What the lattice is without scores and search, or with K = 1 (the paper's Table 2): poor, and quick. It needs candidate
tables and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import EOS, UNK, Finished, Limits, Program, Runner, Session, Source, Step
from longstride.contract.options import Options
from longstride.contract.signatures import Signed
from longstride.contract.slots import Slots
from longstride.systems.lattice.tables import ONE, Tables
from longstride.verification.outputs import Outputs


@dataclass(frozen=True)
class CountsOptions(Options):
    """There is nothing to choose."""


class CountsDecoder(Signed[CountsOptions]):
    """One lookup per sentence."""

    name = "counts"

    def __init__(self, tables: Tables, runner: Runner, options: CountsOptions | None = None) -> None:
        super().__init__(runner, options or CountsOptions())
        self._tables = tables

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty table."""
        return _CountsSession(self._tables, self._runner, capacity, limits, longest_source)


class _CountsSession(Session):
    """Words are looked up when sentences are admitted and written when the table advances."""

    @torch.inference_mode()
    def __init__(self, tables: Tables, runner: Runner, capacity: int, limits: Limits, longest_source: int) -> None:
        self.capacity = capacity
        self.calls = 0
        self._tables, self._runner, self._limits = tables, runner, limits
        self._device = device = runner.device
        columns = int(limits.longest_outputs(torch.tensor(longest_source))) + 1
        self._outputs = Outputs(capacity, columns, device)
        self._ids = torch.full((capacity, columns), EOS, device=device)
        self._scores = torch.zeros(capacity, columns, dtype=torch.float64, device=device)
        self._words = torch.zeros(capacity, dtype=torch.int64, device=device)
        self._ticket = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        self._slots = Slots(capacity)
        self._look_up = Program("candidates", self._best, weightless=True)

    @property
    def free(self) -> int:
        """How many slots are empty."""
        return self._slots.free

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Look all words of new sentences up together."""
        slots, tickets = self._slots.take(source.rows)
        words = self._tables.options.length.predict(source.lengths) - 1
        words = words.clamp(min=max(1, self._limits.min_length)).minimum(self._limits.longest_outputs(source.lengths))
        columns = int(words.max())
        rows = torch.tensor(slots, device=self._device)
        found = self._runner.call(self._look_up, source.ids.to(self._device), source.lengths.to(self._device), columns)
        self.calls += 1
        self._words[rows] = words.to(self._device)
        self._ids[rows, :columns], self._scores[rows, :columns] = found
        self._ticket[rows] = torch.tensor(tickets, device=self._device)
        self._outputs.open(rows)
        return tickets

    @torch.inference_mode()
    def advance(self) -> Step:
        """Write the words of every sentence that waits, and its end."""
        active = ~self._outputs.done
        positions = torch.arange(self._ids.shape[1], device=self._device).expand_as(self._ids)
        ends = positions == self._words[:, None]
        ids = self._ids.masked_fill(ends, EOS)
        written = (positions <= self._words[:, None]) & active[:, None]
        self._outputs.write(positions, ids, written, self._scores.masked_fill(ends, 0.0))
        self._outputs.done.logical_or_(active)  # in place: the host sees this tensor and no other
        none = torch.zeros_like(self._words)
        return Step(self._ticket, active, positions, ids, written, none, none, calls=0)

    @torch.inference_mode()
    def take_finished(self) -> list[Finished]:
        """Read the outputs of the sentences that were written."""
        return self._outputs.take_finished(self._slots)

    def _best(self, source: Tensor, lengths: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        """[rows, columns] the likeliest words that are allowed, unknown where there is none, and their scores."""
        found = self._tables.candidates(source, lengths, columns, 1 + len(self._limits.banned))
        scores = found.log_scores.double()
        if self._limits.banned:
            banned = torch.tensor(self._limits.banned, device=source.device)
            scores = scores.masked_fill(torch.isin(found.ids, banned), -torch.inf)
        best = scores.max(-1)
        ids = found.ids.gather(-1, best.indices[..., None])[..., 0]
        none = best.values == -torch.inf
        return ids.masked_fill(none, UNK), best.values.masked_fill(none, -math.log(ONE))
