"""The ragged session: draft, verify, commit, for a table of rows that each go their own way.

The host's side of it: which sentence stands in which row, how long the next draft is to be, and what has come out. All
else is the batch's (:mod:`longstride.verification.batch_state`). Between two model calls there is only tensor code over
all rows; the host reads a few numbers per row and iteration, in one copy.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import torch

from longstride.contract import Decoder, Finished, Limits, Need, OptionError, Program, Runner, Session, Source, Step
from longstride.contract.decoding import HARD_LIMITS, Signed, signature
from longstride.contract.options import as_dict
from longstride.engine.pool import PooledSession, PoolKey, Slots
from longstride.nn import programs
from longstride.nn.transformer import Transformer
from longstride.verification.acceptance import OF_DRAFTS, OF_SAMPLING, SamplingOptions
from longstride.verification.batch_state import BatchState
from longstride.verification.draft_policy import TIMES, DraftPolicy, LengthFile, best_of, candidates, timed
from longstride.verification.drafting import Drafter, NoDraft
from longstride.verification.sampling import streams_of
from longstride.verification.step import Acceptance, StepResult

if TYPE_CHECKING:
    from longstride.verification.draining import Drain, Gains


_IDLE: WeakKeyDictionary[Transformer, dict[tuple[str, int], Counter[tuple[int, int]]]] = WeakKeyDictionary()
"""With the model, by runtime and block: decoders are made anew for every text, and few texts pay for a recording."""


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
        seed: int = 0,
        positions: int | None = None,
    ) -> None:
        """`seed` is of the random numbers, where tokens are drawn; `positions`: the longest source that all models can
        read (None: the verifier's)."""
        self.model, self.runner, self.drafter, self.limits = model, runner, drafter, limits
        self.seed = seed  # no part of the family: it reaches a table with the sentences
        self.acceptance, self.positions = acceptance or Acceptance(), positions or model.options.longest
        self.verify = verify or programs.verify(model)
        self.family = ("verification", model, self.verify.identity, drafter.key, self.acceptance, limits)
        kind = (f"{runner.name} {runner.precision}", drafter.block)
        self.idle = _IDLE.setdefault(model, {}).setdefault(kind, Counter())
        """by shape, rows that took part in iterations for nothing while tables drained (:mod:`..draining`)"""
        self.insists = False
        """drafts are what was asked for, whether they pay or not"""

    def start(
        self, capacity: int, longest_source: int, policy: DraftPolicy | None = None, refilled: bool = False
    ) -> Session:
        """An empty session, as :func:`start` has it; without a policy, drafts are as long as the drafter's block."""
        return start(partial(self.drafting, policy), capacity, longest_source, refilled)

    def drafting(self, policy: DraftPolicy | None, rows: int) -> tuple[DecodePlan, int]:
        """For so many rows under a policy, the plan, this one or the same without a drafter, and the tokens drafted."""
        block = self.drafter.block if policy is None else policy.length(rows, self.drafter.block)
        most = self.runner.steady_slots
        if most is not None and not self.acceptance.reads_draft:
            # With more slots other kernels make the numbers, and what is nearly a tie may fall otherwise than in
            # greedy search (trees of 15 for 128 rows, fp16: 4 to 21 outputs of 993 to 2,000).
            asked, block = block, min(block, max(0, most // self.runner.round_up(rows) - 1))
            if block < asked and self.insists:
                self.runner.tell_once(
                    f"{asked} drafted tokens were asked for; with {rows} rows {block} are drafted, since numbers of "
                    f"more than {most:,} slots are computed otherwise and outputs might not be greedy's."
                )
        return self if block or not self.drafter.block else self.undrafted, block

    @cached_property
    def undrafted(self) -> DecodePlan:
        """The same without a drafter."""
        return self.drafted_by(NoDraft())

    @property
    def refills(self) -> bool:
        """Whether rows can be refilled on the device; prefixes come from the host, with their sentences."""
        return self.runner.records and self.drafter.queues and not self.limits.prefixes

    def key(self, capacity: int, longest_source: int) -> PoolKey:
        """Of tables for such a session."""
        return PoolKey.of(self.runner, self.family, capacity, longest_source, self.positions)

    def window(self, block: int) -> int:
        """How many tokens may come between two drafts of this length."""
        return 1 + min(block, self.drafter.depth or block)

    def calls(self, block: int) -> int:
        """Model calls of an iteration with such a draft."""
        return 1 + (self.drafter.calls if block else 0)

    def drafted_by(self, drafter: Drafter) -> DecodePlan:
        """The same with another drafter, in tables for the same sources: rows may move from one to the other."""
        given = (self.limits, self.acceptance, self.verify, self.seed, self.positions)
        return DecodePlan(self.model, self.runner, drafter, *given)

    @torch.inference_mode()
    def new_state(self, rows: int, longest_source: int) -> BatchState:
        """For sessions of this plan."""
        return BatchState(
            self.model, self.runner, self.drafter, rows, self.limits, longest_source, self.acceptance, self.verify
        )


DRAWING = 16
"""Bytes that drawing takes for every logit, beside it, at least: a float64 and an int64 number."""


def need(
    model: Transformer,
    runner: Runner,
    limits: Limits,
    longest_source: int,
    block: int = 0,
    option: str = "",
    draws: bool = False,
) -> Need:
    """What a verifying batch takes by the tokens drafted, which the option of that name says."""
    longest = limits.longest_output(longest_source) + 1

    def taken(sentences: int, block: int) -> int:
        logits = sentences * (block + 1) * model.options.vocabulary
        bias = (longest + block) ** 2  # what each slot sees of the others
        tables = model.table_bytes(sentences, longest + block, sentences, longest_source)
        return tables + (logits + bias) * runner.dtype.itemsize + logits * draws * DRAWING

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


Drafting = Callable[[int], tuple[DecodePlan, int]]
"""(rows) -> the plan for so many, and the tokens that are drafted"""


Sources = Mapping[int, tuple[Source, int]]
"""By ticket: a source, and the sentence's row in it."""


def start(
    drafting: Drafting, capacity: int, longest_source: int, refilled: bool = False, arriving: bool = False
) -> Session:
    """An empty session; with `refilled`, one whose rows are refilled on the device, where these are recorded, with
    sentences that are `arriving` or all there."""
    plan, block = drafting(capacity)
    if plan.acceptance.reads_draft:  # outputs hang on drafts: all are drafted alike
        drafting = partial(_always, (plan, block))
    if refilled and plan.refills:
        from longstride.verification.refilled_session import RefilledSession

        return RefilledSession(plan, block, capacity, longest_source, drafting, arriving)
    return VerificationSession(plan, block, capacity, longest_source, drafting)


def _always(found: tuple[DecodePlan, int], rows: int) -> tuple[DecodePlan, int]:
    return found


class VerificationSession(PooledSession[BatchState]):
    """One verifier, one drafter, `capacity` rows; while few are in use and no more are to come, a smaller table."""

    def __init__(self, plan: DecodePlan, block: int, capacity: int, longest_source: int, drafting: Drafting) -> None:
        """`drafting` says how many tokens are drafted where there are fewer rows."""
        super().__init__(plan.key(capacity, longest_source), plan.new_state)
        self._drafting = drafting
        self._longest_source = longest_source
        self._sources: dict[int, tuple[Source, int]] = {}  # by ticket, where it stands in which source
        self._drain: Drain | None = None
        self._gains: Gains | None = None
        self._undrafted = False  # drafts brought too little
        self._use(plan, block)
        # Before the first draft rows have no token that the drafter has not seen.
        self.table.expect(1 if self._looks else self._window)

    def _use(self, plan: DecodePlan, block: int) -> None:
        self.plan = plan
        self._block = block
        self._window = plan.window(block)
        self._looks = self.table.batch.looks
        self._calls = plan.calls(block)
        self.portion = self.table.portion
        self._iterate: Callable[[], StepResult] | None = None
        self.table.expect(self._window)

    @property
    def free(self) -> int:
        """How many more sentences may come."""
        return self.capacity - len(self._slots.used)

    def admit(self, source: Source) -> list[int]:
        """Encode new sentences and open a row for each."""
        if self._undrafted or self._slots.free < source.rows <= self.free:
            self._undrafted, self._gains = False, None
            self._move(self.capacity)
        self._drain = None
        rows, tickets = self._slots.take(source.rows)
        self._sources.update((ticket, (source, row)) for row, ticket in enumerate(tickets))
        streams = None
        if self.plan.acceptance.sampling is not None:
            streams = streams_of(self.plan.seed, source.numbers or tickets)
        for width, some in self.table.portions(source):
            here, known, drawn = ([one[place] for place in some] for one in (rows, tickets, streams or tickets))
            self.table.admit(source.select(some), here, known, drawn, width)
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
        return self.table.step_of(found, self._calls)

    def take_finished(self) -> list[Finished]:
        """Look at how all rows stand, and take the outputs of those that are done."""
        found = self.table.outputs.take_finished(self._slots)
        for one in found:
            del self._sources[one.ticket]
        return found

    def cancel(self, ticket: int) -> None:
        """Its slot idles until another sentence takes it."""
        super().cancel(ticket)
        del self._sources[ticket]

    def settle(self) -> None:
        """Go on in a smaller table once few rows are left, and without drafts where these bring too little."""
        if not self.table.movable:
            return
        self._watch_drafts()
        used = self._slots.thinned()
        if not used:
            return
        if self._drain is None:
            from longstride.verification.draining import Drain

            self._drain = Drain(self._drafted, self._longest_source)
        tickets, shape = (self._slots.held[slot] for slot in used), (self._key.capacity, self._key.longest_source)
        if width := self._drain.width(self.plan, shape, tickets, self.table.outputs.lengths(used), self._sources):
            self._move(width)

    def _watch_drafts(self) -> None:
        from longstride.verification.draining import WASTED, WORTH, Gains

        if not self._block or self.plan.acceptance.reads_draft or self.plan.insists:
            return
        if self._gains is None:
            self._gains = Gains()
        if not self._gains.due():
            return
        rows, used = self._key.capacity, self._slots.used
        tickets = [ticket for ticket in self._slots.held if ticket is not None]
        lengths = dict(zip(tickets, self.table.outputs.lengths(used), strict=True))
        if not self._gains.poor(lengths):
            return
        shape = (rows, self._key.longest_source)
        self.plan.idle[shape] += WASTED
        if self.plan.idle[shape] >= WORTH or self.plan.undrafted.key(rows, self._longest_source).ready:
            self.plan.idle[shape] = 0
            self._undrafted, self._drain = True, None
            self._move(rows)

    def _drafted(self, rows: int) -> tuple[DecodePlan, int]:
        plan, block = self._drafting(rows)
        return (plan.undrafted, 0) if self._undrafted else (plan, block)

    def take_over(
        self, capacity: int, table: BatchState, held: Mapping[int, int], sources: Sources, upcoming: int, window: int
    ) -> None:
        """Go on, as a session of that capacity, with sentences of another's table: `held` says in which row each ticket
        stands, `upcoming` is the next ticket."""
        self.capacity = capacity
        self._sources = {ticket: sources[ticket] for ticket in held}
        self._slots.hold(list(held), upcoming)
        self._resume(table, held, window)

    def _move(self, rows: int) -> None:
        """Go on in a table of so many rows."""
        table, key, window = self.table, self._key, self._window
        held = {ticket: row for row, ticket in enumerate(self._slots.held) if ticket is not None}
        plan, block = self._drafted(rows)
        self._key = plan.key(rows, self._longest_source)
        self.table = self._key.acquire(plan.new_state)
        self._slots.keep(list(held.values()), self._key.capacity)
        self._use(plan, block)
        self._resume(table, held, window)
        key.release(table, Slots(key.capacity))

    def _resume(self, table: BatchState, held: Mapping[int, int], window: int) -> None:
        from longstride.verification.draining import picked

        # What came since the last draft has to fit into the next one's window.
        copied = table.drafter.remembers == self.table.drafter.remembers and window <= self._window
        self.table.resume(table, list(held.values()), picked([self._sources[ticket] for ticket in held]), copied)


# --- what decoders that verify have in common ------------------------------------------------------------------------


Options = TypeVar("Options")

_MEASURED: WeakKeyDictionary[Transformer, dict[str, dict[Limits, DraftPolicy]]] = WeakKeyDictionary()
"""How long drafts should be, by model, decoder and runner (both in a signature) and limits."""


class VerifyingDecoder(Signed[Options]):
    """A drafter proposes, the model verifies."""

    obeys = HARD_LIMITS
    _asked: SamplingOptions | None = None
    """The options as they were given, where whichever way of drafting is taken outputs may be the same."""
    insists = False
    """Options of a call say how much is drafted: nothing that is stored, measured or usual says otherwise."""

    def __init__(self, model: Transformer, runner: Runner, options: Options, block: int = 0) -> None:
        super().__init__(runner, options)
        self._model, self._block, self.special = model, block, model.special
        self._plans = PlanCache()
        # With the model: decoders are made anew, what was measured of them stays.
        self._measured = _MEASURED.setdefault(model, {}).setdefault(self._timed_as, {})
        self._met = Counter[tuple[Limits, int]]()  # sentences, by rows, while nothing is measured
        self._file: LengthFile | None = None
        self._growing: dict[int, VerifyingDecoder[Options]] = {}
        self._given: DraftPolicy | None = getattr(options, "lengths", None)
        if self._given is not None and self._given.trees and not hasattr(options, "tree"):
            raise OptionError(f"lengths expects chains for {self.name}, which drafts no trees, found {self._given}.")
        if self._given is not None and self._given.longest_chain > block:
            raise OptionError(f"lengths expects chains of at most {block} tokens for {self.name}, found {self._given}.")

    def with_options(self, options: Options) -> VerifyingDecoder[Options]:
        """The same decoder with other options, where it has any of drafting."""
        raise NotImplementedError(f"{self.name} always drafts the same way.")

    def changed(self, **changes: Any) -> VerifyingDecoder[Options]:
        """The same decoder with some options changed."""
        made = self.with_options(replace(self.options, **changes))  # type: ignore[type-var]
        made.insists = self.insists
        return made

    def without_slow_drafts(self, unsaid: Collection[str] = ()) -> VerifyingDecoder[Options]:
        """The same decoder, whose outputs are the same, with drafts only where they usually pay on this device; itself
        where options say how long drafts are, unless nobody said so (`unsaid`: a folder's defaults), or outputs
        depend on them."""
        usual, asked = DraftPolicy.usual(self._runner.device.type), self._asked
        if usual is None or asked is None or self.insists:
            return self
        nothing = {name: getattr(type(asked), name) for name in unsaid if name in OF_DRAFTS and hasattr(asked, name)}
        if not replace(asked, **nothing).leave_drafts_open:
            return self
        return self.changed(lengths=usual)

    def with_shorter_drafts(self) -> VerifyingDecoder[Options]:
        """The same decoder with drafts half as long."""
        return self.changed(lengths=DraftPolicy(((1, max(1, self._block // 2)),)))

    @property
    def signature(self) -> str:
        """Its name, every option and the runner; nothing of drawing where nothing is drawn."""
        return signature(self.name, self.options, self._runner, () if self._draws else OF_SAMPLING)

    @property
    def _timed_as(self) -> str:
        """The same for decoders that take equally long: whatever the seed."""
        return signature(self.name, self.options, self._runner, OF_SAMPLING[-1:] if self._draws else OF_SAMPLING)

    @property
    def _draws(self) -> bool:
        return getattr(self.options, "temperature", 0) > 0

    def keep_lengths(self, file: LengthFile) -> None:
        """Read what was measured before from a file, and write there what is measured now."""
        self._file = file

    @abstractmethod
    def plan(self, limits: Limits) -> DecodePlan:
        """Who drafts, and how drafts are judged."""

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty table."""
        return start(partial(self._drafting, limits, capacity), capacity, longest_source)

    def start_refilled(self, capacity: int, limits: Limits, longest_source: int, arriving: bool = False) -> Session:
        """An empty table, refilled on the device where iterations are recorded."""
        return start(partial(self._drafting, limits, capacity), capacity, longest_source, True, arriving)

    def _drafting(self, limits: Limits, capacity: int, rows: int) -> tuple[DecodePlan, int]:
        """For so many rows of a session that began with others; what was measured says nothing of fewer."""
        measured = self._known(limits) if self._given is None else None
        policy = measured or self._given
        rows = rows if measured is None or measured.reaches(rows) else capacity
        if policy is not None and (nodes := policy.nodes(rows)):
            if nodes not in self._growing:
                self._growing[nodes] = self.changed(tree=nodes, lengths=None)
            return self._growing[nodes]._drafting(limits, capacity, rows)
        return self._plans.of(limits, self._planned).drafting(policy, rows)

    def _planned(self, limits: Limits) -> DecodePlan:
        plan = self.plan(limits)
        plan.insists = self.insists
        return plan

    def need(self, limits: Limits, longest_source: int) -> Need:
        """By the block and the sentences."""
        block = self._block if self._given is None else max([self._block, *(each for _, each in self._given.lengths)])
        by = (block, "k" if self._block else "", self._draws)
        return need(self._model, self._runner, limits, longest_source, *by)

    def suited(self, source: Source, limits: Limits, rows: int) -> Decoder:
        """With `adaptive`, how long drafts are is measured first, once for so many rows that are worth it."""
        if getattr(self.options, "adaptive", False) and self._given is None:
            self._measure(source, limits, rows)
        return self

    def _measure(self, source: Source, limits: Limits, rows: int) -> None:
        """Time a batch of these sentences with drafts of several lengths and with none, once as many were to decode."""
        known, lengths = self._known(limits) or DraftPolicy(), candidates(self._block)
        self._met[limits, rows] += source.rows
        worth = self._met[limits, rows] >= rows * len(lengths) * (
            1 + TIMES
        )  # no run measures for longer than it decodes
        if known.knows(rows) or not (worth or self._plans.of(limits, self._planned).acceptance.reads_draft):
            return
        sample = source.slice(0, rows)

        def run(length: int) -> None:
            self._measured[limits] = known.with_length(rows, length)
            self.decode(sample, limits)

        best: int | None = None
        try:
            best = best_of(timed(lengths, run))
        finally:  # a trial that was interrupted says nothing
            self._measured[limits] = known if best is None else known.with_length(rows, best)
        if self._file is not None:
            self._file.write(self._key(limits), self._measured[limits])

    def _known(self, limits: Limits) -> DraftPolicy | None:
        """What was measured, in this process or before."""
        if self._file is not None and limits not in self._measured and (kept := self._file.read(self._key(limits))):
            self._measured[limits] = kept
        return self._measured.get(limits)

    def _key(self, limits: Limits) -> str:
        # Names in our JSON files are bounded, and options with limits are longer.
        return hashlib.sha256(f"{self._timed_as}|{json.dumps(as_dict(limits))}".encode()).hexdigest()[:32]
