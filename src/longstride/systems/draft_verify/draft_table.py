"""The table of the drafter alone: all that changes, in tensors that never move, and what is done to them.

Every pass appends a block to every row, cut after its first EOS; nobody verifies. Entering and drafting are functions
of these tensors alone, so that a runner may record them. Knows no slots: which row is free the session knows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import torch
from torch import Tensor

from longstride import ops
from longstride.contract import Limits, Runner, Source
from longstride.engine.outputs import Outputs
from longstride.engine.pool import InputStaging
from longstride.systems.draft_verify.drafter import ModelDrafter
from longstride.verification.acceptance import EXACT, LogitSummary, forbidden_ids
from longstride.verification.drafting import Proposal, View
from longstride.verification.kernels import settle
from longstride.verification.step import StepResult


class DraftTable:
    """One drafter, `capacity` rows for sources of at most `longest_source` tokens."""

    steady = True
    """it keeps its shape, and what it holds of earlier sentences is hidden"""

    def __init__(
        self, drafter: ModelDrafter, runner: Runner, limits: Limits, capacity: int, longest_source: int
    ) -> None:
        self._drafter = drafter
        self._runner = runner
        device = runner.device
        columns = int(limits.longest_outputs(torch.tensor(longest_source))) + 1 + drafter.block
        self._state = drafter.begin(capacity, longest_source, columns, device)
        self._fused = runner.fuses
        newest = torch.zeros(capacity, dtype=torch.int64, device=device) if self._fused else None
        self.outputs = Outputs(capacity, columns, device, newest, drafter.special.start)
        self._longest = torch.zeros(capacity, dtype=torch.int64, device=device)
        self._longest_of = limits.longest_outputs(torch.arange(longest_source + 1)).to(device)
        self._forbidden = forbidden_ids(limits, device, drafter.special)
        self.ticket = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        # A recording encodes equal portions; where there is none, whoever comes together is encoded together.
        portion = max(1, capacity // 4) if runner.records else capacity
        self._staging = InputStaging(portion, longest_source, runner)
        self._all_but_one = torch.full((capacity,), drafter.block - 1, dtype=torch.int64, device=device)
        self._entering: Callable[[], None] | None = None
        self._iterating: dict[int, Callable[[], StepResult]] = {}

    @cached_property
    def buffers(self) -> list[Tensor]:
        """All that an iteration or an entrance writes."""
        return [*(self._drafter.buffers(self._state) or []), *self.outputs.buffers, self._longest, self.ticket]

    @property
    def recordings(self) -> int:
        """How many ways of entering and drafting were recorded."""
        return (self._entering is not None) + len(self._iterating) if self._runner.records else 0

    @cached_property
    def nbytes(self) -> int:
        """What the tensors take that stay."""
        return sum(buffer.nbytes for buffer in self.buffers)

    # --- new sentences -----------------------------------------------------------------------------------------------

    def admit(self, source: Source, rows: list[int], tickets: list[int]) -> int:
        """Encode new sentences and open these rows for them; how many portions they made."""
        portion = self._staging.portion
        for first in range(0, source.rows, portion):
            last = min(first + portion, source.rows)
            self._staging.send(source.slice(first, last), rows[first:last], tickets[first:last])
            if last - first < portion:
                self._enter(last - first)
                continue
            if self._entering is None:
                self._entering = self._runner.record("enter", partial(self._enter, portion), self.buffers)
            self._entering()
        return -(-source.rows // portion)

    def drop(self, row: int) -> None:
        """Give the sentence in this row up."""
        self.outputs.drop(row)

    def _enter(self, count: int) -> None:
        staging = self._staging
        rows, source = staging.rows[:count], Source(staging.ids[:count], staging.lengths[:count])
        self._drafter.admit(self._state, rows, source, None)
        self.outputs.open(rows)
        self._longest.index_copy_(0, rows, self._longest_of[source.lengths])
        self.ticket.index_copy_(0, rows, staging.tickets[:count])

    # --- draft, commit -----------------------------------------------------------------------------------------------

    def iterate(self, first: bool = False) -> StepResult:
        """Append a block to every live row. With `first`, none of them has a token yet."""
        # A first pass has nothing to catch up with; bits of our own kernels do not depend on the number of slots.
        window = 1 if first and self._fused and self._drafter.catches_up else self._drafter.block + 1
        if window not in self._iterating:
            iterate = partial(self._iterate, window)
            self._iterating[window] = self._runner.record(f"draft after {window}", iterate, self.buffers)
        return self._iterating[window]()

    def _iterate(self, window: int) -> StepResult:
        rows, block = self.outputs.rows, self._drafter.block
        active = torch.logical_not(rows.done)
        before = torch.where(active, rows.length, 0) if rows.start is None else rows.start
        view = View(rows.tokens, before, rows.newest, rows.done, self._longest, self._forbidden, window)
        reading = self._drafter.choose(self._state, view, block)
        ids = reading.top
        if self._fused:
            return self._commit_fused(reading)
        ends = ids == self._drafter.special.eos
        # Up to and with the first EOS: no column after one that ends.
        written = (ends.long().cumsum(dim=1) - ends.long() == 0) & active[:, None]
        positions = ops.slots_from(before, block)
        self.outputs.write(positions, ids, written, reading.top_log_probability)
        rows.done.logical_or_(active & ends.any(dim=1))
        return StepResult(active, positions, ids, written, ids)

    def _commit_fused(self, reading: LogitSummary) -> StepResult:
        """By a kernel, which is told that all but the block's last token were drafted and are the verifier's choices
        too, and that the last is its own: it then commits up to the first EOS."""
        ids = reading.top
        shifted = torch.cat([ids[:, :1], ids[:, :-1]], dim=1)  # nobody looks at the first
        draft = Proposal(shifted[:, 1:], self._all_but_one)
        found, _, _ = settle(EXACT, 1, shifted, draft, reading, None, self.outputs.rows, self._drafter.special.eos)
        active, positions, _, written, _ = found
        return StepResult(active, positions, ids, written, ids)
