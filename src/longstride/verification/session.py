"""The ragged session: draft, verify, commit, for a table of rows that each go their own way.

The host's side of it: which sentence stands in which row, how long the next draft is to be, and what has come out. All
else is the batch's (:mod:`longstride.verification.batch_state`). Between two model calls there is only tensor code over
all rows; the host reads a few numbers per row and iteration, in one copy.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from longstride.contract import Finished, Limits, Need, Program, Runner, Source, Step
from longstride.engine.pool import PooledSession, PoolKey
from longstride.nn import programs
from longstride.nn.transformer import Transformer
from longstride.verification.batch_state import BatchState
from longstride.verification.draft_policy import DraftPolicy
from longstride.verification.drafting import Drafter, NoDraft
from longstride.verification.step import Acceptance, StepResult


class DecodePlan:
    """What the sessions of one decoder have in common under the same limits, made once.

    Programs and drafters take as long to make as a step takes to launch, which is a part of a short sentence.
    """

    def __init__(
        self,
        model: Transformer,
        runner: Runner,
        drafter: Drafter,
        limits: Limits,
        acceptance: Acceptance | None = None,
        verify: Program | None = None,
    ) -> None:
        self.model, self.runner, self.drafter, self.limits = model, runner, drafter, limits
        self.acceptance = acceptance or Acceptance()
        self.verify = verify or programs.verify(model)
        self.family = ("verification", model, self.verify.identity, drafter.key, self.acceptance, limits)

    def start(self, capacity: int, longest_source: int, policy: DraftPolicy | None = None) -> VerificationSession:
        """An empty session; without a policy, drafts are as long as the drafter's block."""
        block = self.drafter.block if policy is None else policy.length(capacity, self.drafter.block)
        plan = self if block or not self.drafter.block else self.drafted_by(NoDraft())
        return VerificationSession(plan, capacity, longest_source, block)

    def drafted_by(self, drafter: Drafter) -> DecodePlan:
        """The same with another drafter."""
        return DecodePlan(self.model, self.runner, drafter, self.limits, self.acceptance, self.verify)

    @torch.inference_mode()
    def new_state(self, rows: int, longest_source: int) -> BatchState:
        """For sessions of this plan."""
        return BatchState(
            self.model, self.runner, self.drafter, rows, self.limits, longest_source, self.acceptance, self.verify
        )


def need(
    model: Transformer, runner: Runner, limits: Limits, longest_source: int, block: int = 0, option: str = ""
) -> Need:
    """What a verifying batch takes by the tokens drafted, which the option of that name says."""
    longest = limits.longest_output(longest_source) + 1

    def taken(sentences: int, block: int) -> int:
        logits = sentences * (block + 1) * model.options.vocabulary
        bias = (longest + block) ** 2  # what each slot sees of the others
        tables = model.table_bytes(sentences, longest + block, sentences, longest_source)
        return tables + (logits + bias) * runner.dtype.itemsize

    return Need(taken, runner.device, option, block)


class PlanCache:
    """The plans of a decoder, by their limits: it is asked for the same few again and again."""

    most = 16
    """kept at once"""

    def __init__(self) -> None:
        self._made: dict[Limits, DecodePlan] = {}

    def of(self, limits: Limits, make: Callable[[Limits], DecodePlan]) -> DecodePlan:
        """The one for these limits; `make` is asked where there is none yet."""
        found = self._made.get(limits)
        if found is None:
            if len(self._made) >= self.most:
                self._made.clear()
            found = self._made[limits] = make(limits)
        return found


class VerificationSession(PooledSession[BatchState]):
    """One verifier, one drafter, `capacity` rows."""

    def __init__(self, plan: DecodePlan, capacity: int, longest_source: int, block: int) -> None:
        super().__init__(
            PoolKey.of(plan.runner, plan.family, capacity, longest_source, plan.model.options.longest), plan.new_state
        )
        self.plan = plan
        self._longest_source = longest_source
        self._block = block
        self._window = 1 + min(block, plan.drafter.depth or block)
        self._looks = self.table.batch.looks
        self._calls = 1 + (plan.drafter.calls if self._block else 0)
        self.portion = self.table.portion if self.table.recorded else 1
        self._iterate: Callable[[], StepResult] | None = None
        # Before the first draft rows have no token that the drafter has not seen.
        self.table.expect(1 if self._looks else self._window)
        self._recent: StepResult | None = None
        self._step: Step | None = None  # what was made of it

    def drafted_by(self, drafter: Drafter) -> VerificationSession:
        """An empty session of the same plan and shape with another drafter of the same block."""
        return self.plan.drafted_by(drafter).start(self.capacity, self._longest_source)

    def admit(self, source: Source) -> list[int]:
        """Encode new sentences and open a row for each."""
        rows, tickets = self._slots.take(source.rows)
        portion = self.table.portion
        for first in range(0, len(rows), portion):
            last = first + portion
            self.table.admit(source.slice(first, last), rows[first:last], tickets[first:last])
            self.calls += 1
        return tickets

    def advance(self) -> Step:
        """Draft, verify, commit."""
        if self._iterate is None:
            self._iterate = self.table.iteration(self._block, self._window)
        found = self._iterate()
        self.calls += self._calls
        if self._looks and self._block:
            # Where looking at a number costs nothing, a drafter need not run more tokens again than were committed.
            self.table.expect(1 + self.table.outputs.most_accepted())
        if found is self._recent and self._step is not None:  # the same tensors each time
            return self._step
        table = self.table
        rows, self._recent = table.outputs.rows, found
        self._step = Step(
            table.ticket,
            found.active,
            found.positions,
            found.ids,
            found.written,
            rows.drafted,
            rows.accepted,
            calls=self._calls,
            draft=found.draft,
        )
        return self._step

    def cancel(self, ticket: int) -> None:
        """Its row idles until another sentence takes it."""
        row = self._slots.slot_of(ticket)
        self.table.outputs.drop(row)
        self._slots.release(row)

    def take_finished(self) -> list[Finished]:
        """Look at how all rows stand, and take the outputs of those that are done."""
        return self.table.outputs.take_finished(self._slots)
