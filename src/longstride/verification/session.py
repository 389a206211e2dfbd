"""The ragged session: draft, verify, commit, for a table of rows that each go their own way.

The host's side of it: which sentence stands in which row, how long the next draft is to be, and what has come out. All
else is the table's (:mod:`longstride.verification.table`). Between two model calls there is only tensor code over all
rows; the host reads a few numbers per row and iteration, in one copy.

Where the runner says so (`Runner.ahead`), an iteration is launched before the host has looked at the last one's
numbers. Rows that turn out to be done idle in it, and their outputs stay as they were.
"""

from __future__ import annotations

import time

import torch

from longstride.contract import Finished, Limits, Program, Runner, Source, Step
from longstride.nn import programs
from longstride.nn.transformer import Transformer
from longstride.verification.drafting import Drafter
from longstride.verification.lease import Lease, LeasedSession
from longstride.verification.settling import Iteration
from longstride.verification.table import STRICT, Policy, Table


class VerificationSession(LeasedSession[Table]):
    """One verifier, one drafter, `capacity` rows."""

    @torch.inference_mode()
    def __init__(
        self,
        model: Transformer,
        runner: Runner,
        drafter: Drafter,
        capacity: int,
        limits: Limits,
        longest_source: int,
        policy: Policy = STRICT,
        verify: Program | None = None,
    ) -> None:
        self.policy = policy
        self._parts = (model, runner, limits, longest_source, verify)
        verify = verify or programs.verify(model)
        family = ("verification", model, verify.identity, drafter.key, policy, limits)
        lease = Lease.of(runner, family, capacity, longest_source, model.options.longest)

        def make(rows: int, longest: int) -> Table:
            return Table(model, runner, drafter, rows, limits, longest, policy, verify)

        super().__init__(lease, make)
        self._most = drafter.block
        self._behind = drafter.block + 1  # tokens that rows may have got since the last draft
        self._recent: Iteration | None = None
        self._step: Step | None = None  # what was made of it
        self._launched: Iteration | None = None  # that nobody has asked for yet
        self._ahead = runner.ahead and self.table.recorded and self.table.outputs.apart and not policy.adaptive
        self._observed = True  # what became of the last draft
        self._begun: float | None = None  # when the last iteration was, where it tells what iterations cost

    def drafted_by(self, drafter: Drafter) -> VerificationSession:
        """An empty session of the same kind and shape with another drafter of the same block."""
        model, runner, limits, longest_source, verify = self._parts
        return VerificationSession(model, runner, drafter, self.capacity, limits, longest_source, self.policy, verify)

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Encode new sentences and open a row for each."""
        rows, tickets = self._slots.take(source.rows)
        portion = self.table.portion
        for first in range(0, source.rows, portion):
            last = first + portion
            self.table.admit(source.slice(first, last), rows[first:last], tickets[first:last])
            self.calls += 1
        return tickets

    def advance(self) -> Step:
        """Draft, verify, commit."""
        table, policy = self.table, self.policy
        block = table.pace.block if policy.adaptive else self._most
        found = self._launched or self._iterate(block)
        self._launched = None
        calls = 1 + (table.drafter.calls if block else 0)
        self.calls += calls
        if found is self._recent and self._step is not None:  # a recording writes the same tensors each time
            self._observed = False
            return self._step
        self._recent, self._observed = found, False
        self._step = Step(
            table.ticket,
            found.active,
            found.positions,
            found.ids,
            found.written,
            found.drafted,
            found.accepted,
            calls=calls,
            draft=found.draft,
        )
        return self._step

    def _iterate(self, block: int) -> Iteration:
        table = self.table
        window = self._window(block)
        begun = time.perf_counter() if table.knows(block, window) else None
        found = table.iterate(block, window)
        self._begun = begun
        if not block:
            self._behind += 1
        elif table.recorded or self._runner.device.type != "cpu":
            self._behind = block + 1
        else:
            # Where looking at a number costs nothing, a drafter need not run more tokens again than were committed.
            self._behind = int(found.accepted.max()) + 1
        return found

    def take_finished(self) -> list[Finished]:
        """Look at how all rows stand, and take the outputs of those that are done."""
        outputs = self.table.outputs
        outputs.send()
        if self._ahead and self._launched is None:
            self._launched = self._iterate(self._most)
        outputs.wait()
        if self.policy.adaptive and not self._observed:
            seconds = None if self._begun is None else time.perf_counter() - self._begun
            self.table.pace.observe(*outputs.fates, seconds)
            self._observed = True
        finished = outputs.finished(self._slots)
        if finished and self._slots.free == self.capacity:
            self._launched = None  # nobody took part in it
        return finished

    def _window(self, block: int) -> int:
        """How many tokens a drafter has to run again at most: one number for all, unless it has not drafted lately."""
        usual = self._most + 1
        if not block or (self.table.recorded and self._behind <= usual):
            return usual
        return min(self._runner.room(self._behind), self.table.columns)


__all__ = ["STRICT", "Policy", "VerificationSession"]
