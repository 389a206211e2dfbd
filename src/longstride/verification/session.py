"""The ragged session: draft, verify, commit, for a table of rows that each go their own way.

The host's side of it: which sentence stands in which row, how long the next draft is to be, and what has come out. All
else is the table's (:mod:`longstride.verification.table`). Between two model calls there is only tensor code over all
rows; the host reads a few numbers per row and iteration, in one copy.

Blocks that follow the clock are chosen iteration by iteration where nothing is recorded
(:mod:`longstride.verification.free_pacing`). Where iterations are, a session always drafts or never, and which is
chosen when it starts (:mod:`longstride.verification.pacing`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from longstride.contract import Finished, Limits, Need, Program, Runner, Source, Step
from longstride.nn import programs
from longstride.nn.transformer import Transformer
from longstride.verification.drafting import Drafter, NoDraft
from longstride.verification.free_pacing import FreePacing
from longstride.verification.lease import Lease, LeasedSession
from longstride.verification.paced import SPARE, Terms
from longstride.verification.pacing import Paces, Watch
from longstride.verification.settling import Iteration
from longstride.verification.table import STRICT, Policy, Table
from longstride.verification.thrift import Thrift


class Kind:
    """What the sessions of one decoder have in common under the same limits, made once.

    Programs and drafters take as long to make as a step takes to launch, which is a part of a short sentence.
    """

    def __init__(
        self,
        model: Transformer,
        runner: Runner,
        drafter: Drafter,
        limits: Limits,
        policy: Policy = STRICT,
        verify: Program | None = None,
    ) -> None:
        self.model, self.runner, self.drafter = model, runner, drafter
        self.limits, self.policy = limits, policy
        self.verify = verify or programs.verify(model)
        self.thrift = Thrift(drafter.block)
        """what sessions have found out, where blocks follow the clock"""
        self._paces = Paces()  # the same where each way is a recording
        self._ways = self._both() if policy.adaptive and runner.records else None
        self.family = ("verification", model, self.verify.identity, drafter.key, policy, limits)

    def start(self, capacity: int, longest_source: int) -> VerificationSession:
        """An empty session."""
        if self._ways is None:
            return VerificationSession(self, capacity, longest_source)
        rows = self.runner.room(capacity)
        pace = self._paces.of(rows)
        drafts = pace.choose()
        session = VerificationSession(self._ways[drafts], capacity, longest_source, Watch(pace, drafts, rows))
        if not session.table.prepared:
            # Both, so that nothing has to be recorded when an opinion changes: it takes as long as some batches do.
            session.table.prepare()
            other = VerificationSession(self._ways[not drafts], capacity, longest_source)
            other.table.prepare()
            other.close()
        return session

    def _both(self) -> tuple[Kind, Kind] | None:
        """Greedy search and fixed blocks; None where a drafter works on the host, so that nothing is recorded."""
        drafter = self.drafter
        if drafter.buffers(drafter.begin(1, 1, 2 + drafter.block, self.runner.device)) is None:
            return None
        never = Kind(self.model, self.runner, NoDraft(), self.limits, STRICT, self.verify)
        policy = replace(self.policy, adaptive=False)
        return never, Kind(self.model, self.runner, drafter, self.limits, policy, self.verify)

    def drafted_by(self, drafter: Drafter) -> Kind:
        """The same with another drafter of the same block."""
        return Kind(self.model, self.runner, drafter, self.limits, self.policy, self.verify)

    @torch.inference_mode()
    def new_table(self, rows: int, longest_source: int) -> Table:
        """For sessions of this kind."""
        return Table(self.model, self.runner, self.drafter, rows, self.limits, longest_source, self.policy, self.verify)


def need(
    model: Transformer, runner: Runner, limits: Limits, longest_source: int, block: int = 0, option: str = ""
) -> Need:
    """What a verifying table takes by the tokens drafted, which the option of that name says."""
    longest = limits.longest_output(longest_source) + 1

    def taken(sentences: int, block: int) -> int:
        logits = sentences * (block + 1) * model.options.vocabulary
        sight = (longest + block) ** 2  # what each slot sees of the others
        tables = model.table_bytes(sentences, longest + block, sentences, longest_source)
        return tables + (logits + sight) * runner.dtype.itemsize

    return Need(taken, runner.device, option, block)


class Kinds:
    """The kinds of a decoder's sessions, by their limits: it is asked for the same few again and again."""

    most = 16
    """kept at once"""

    def __init__(self) -> None:
        self._made: dict[Limits, Kind] = {}

    def of(self, limits: Limits, make: Callable[[Limits], Kind]) -> Kind:
        """The one for these limits; `make` is asked where there is none yet."""
        found = self._made.get(limits)
        if found is None:
            if len(self._made) >= self.most:
                self._made.clear()
            found = self._made[limits] = make(limits)
        return found


class VerificationSession(LeasedSession[Table]):
    """One verifier, one drafter, `capacity` rows."""

    def __init__(self, kind: Kind, capacity: int, longest_source: int, watch: Watch | None = None) -> None:
        runner, drafter, policy = kind.runner, kind.drafter, kind.policy
        super().__init__(
            Lease.of(runner, kind.family, capacity, longest_source, kind.model.options.longest), kind.new_table
        )
        self.policy = policy
        self._kind = kind
        self._longest_source = longest_source
        self._most = drafter.block
        # How many tokens a drafter is told to run again, where it always drafts or few such numbers are better.
        self._usual = drafter.block + 1
        self._looks = not self.table.recorded and runner.device.type == "cpu"  # at what it likes, at no cost
        # Tokens that rows may have got since the last draft; before the first they have none.
        self._behind = 1 if self._looks else self._usual
        self._recent: Iteration | None = None
        self._step: Step | None = None  # what was made of it
        # An iteration that is the same each time and was recorded: nothing has to be asked before it is launched.
        self._again = None if policy.adaptive else self.table.again(drafter.block, drafter.block + 1)
        self._pacing = self._paced() if policy.adaptive else None
        self._observed = True  # what became of the last draft
        self._watch = watch
        self._unseen = False  # sentences came into an empty table, and no iteration was looked at since

    def _paced(self) -> FreePacing:
        """For blocks that follow the clock."""
        table = self.table
        window = min(self._usual + SPARE, table.columns) if table.drafter.calls else None
        terms = Terms(not self._looks, table.drafter.ahead is not None, window)
        return FreePacing(self._kind.thrift, table, self.capacity, terms)

    def drafted_by(self, drafter: Drafter) -> VerificationSession:
        """An empty session of the same kind and shape with another drafter of the same block."""
        return self._kind.drafted_by(drafter).start(self.capacity, self._longest_source)

    def admit(self, source: Source) -> list[int]:
        """Encode new sentences and open a row for each."""
        all_new = self._slots.free == self.capacity
        if all_new and self._watch is not None:
            self._watch.begin()
            self._unseen = True
        if self._pacing is not None:
            self._pacing.encode(all_new)
            if all_new:
                self._behind = 1
        rows, tickets = self._slots.take(source.rows)
        portion = self.table.portion
        for first in range(0, len(rows), portion):
            last = first + portion
            self.table.admit(source.slice(first, last), rows[first:last], tickets[first:last])
            self.calls += 1
        return tickets

    def advance(self) -> Step:
        """Draft, verify, commit."""
        table = self.table
        block = self._most if self._pacing is None else self._pacing.choose(self._behind)
        found = self._iterate(block)
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
        if self._again is not None:
            return self._again()
        table = self.table
        window = self._window(block)
        if self._pacing is not None:
            self._pacing.begin(block, window)
        found = table.iterate(block, window)
        if not block:
            self._behind += 1
        elif self._looks:
            # Where looking at a number costs nothing, a drafter need not run more tokens again than were committed.
            self._behind = max(found.accepted.tolist()) + 1
        else:
            self._behind = block + 1
        if self._pacing is None:
            self._again = table.again(block, window)
        return found

    def take_finished(self) -> list[Finished]:
        """Look at how all rows stand, and take the outputs of those that are done."""
        outputs = self.table.outputs
        outputs.send()
        outputs.wait()
        if self._unseen and self._watch is not None:
            self._watch.look()
            self._unseen = False
        if self._pacing is not None and not self._observed:
            held = self._slots.held
            self._pacing.end([stood for row, stood in enumerate(outputs.stood) if held[row] is not None])
            self._observed = True
        finished = outputs.finished(self._slots)
        if finished and self._watch is not None:
            lengths = [len(one.hypotheses[0].tokens) + 1 for one in finished]
            self._watch.finish(lengths, self._slots.free == self.capacity)
        return finished

    def _window(self, block: int) -> int:
        """How many tokens a drafter has to run again at most: one number for all, unless it has not drafted lately."""
        if not block or not self.table.drafter.calls or (self.table.recorded and self._behind <= self._usual):
            return self._usual
        return min(self._runner.room(self._behind), self.table.columns)


__all__ = ["STRICT", "Kind", "Kinds", "Policy", "VerificationSession", "need"]
