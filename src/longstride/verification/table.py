"""The table of a verifying session: all that changes, in tensors that never move, and what is done to them.

It keeps, per row, the committed ids and their number; the cache holds keys and values of the input slots, where slot s
holds the token before output position s (START at 0). After an iteration that commits n tokens, the cache is right up
to the new length and left-over beyond it: rewinding is not moving the length further.

Entering and iterating are functions of these tensors alone: no number is looked at on the host and nothing is made
anew that outlives the call, so that a runner may record them once and repeat the recording. Knows no slots and no
tickets beyond their numbers: which row is free the session knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from longstride.contract import START, Limits, Program, Runner, Source
from longstride.nn import programs
from longstride.nn.cache import EncoderState
from longstride.nn.transformer import Transformer
from longstride.verification.acceptance import EXACT, Reading, Rule, Verdict, judge
from longstride.verification.arrivals import Arrivals
from longstride.verification.at_once import at_once
from longstride.verification.drafting import Drafter, NoDraft, Proposal, View
from longstride.verification.judged import Judged, judged
from longstride.verification.kernels import Bounds, permitted_ids, read_fused, usable
from longstride.verification.kernels import settle as settle_fused
from longstride.verification.lone_row import Attempts, Desk, LoneRow
from longstride.verification.outputs import Outputs
from longstride.verification.reading import forbidden_ids, normalise, read
from longstride.verification.settling import Iteration, settle
from longstride.verification.unread import Unread

R = TypeVar("R")


@dataclass(frozen=True)
class Policy:
    """How drafts are judged and how long they are."""

    rule: Rule = EXACT
    min_block: int = 1
    """commit at least so many tokens per iteration, the verifier's own included"""
    adaptive: bool = False
    """let the block follow how recent drafts fared"""


STRICT = Policy()


class Table:
    """One verifier, one drafter, `capacity` rows for sources of at most `longest_source` tokens."""

    def __init__(
        self,
        model: Transformer,
        runner: Runner,
        drafter: Drafter,
        capacity: int,
        limits: Limits,
        longest_source: int,
        policy: Policy,
        verify: Program,
    ) -> None:
        self.runner = runner
        self.drafter = drafter
        self.verify = verify
        self.policy = policy
        # Encoding in equal portions keeps a sentence's bits independent of who is admitted beside it.
        self.portion = max(1, capacity // 4)
        self._encode_source = programs.encode_source(model)
        self._limits = limits
        self._fused = usable(runner)
        looks = runner.device.type == "cpu" and not runner.records and not self._fused
        exact = policy.rule == EXACT and policy.min_block == 1 and not limits.min_length
        # Where looking at a number costs nothing, reading and judging an exact draft is part of the verifier's call.
        self._judged = judged(verify, drafter.ahead) if looks and exact else None
        # Without a draft nothing is predicted either, so that an iteration costs what it costs in greedy search.
        self._judged_alone = judged(verify) if self._judged is not None and drafter.ahead is not None else self._judged
        # Only a rule that tolerates more than the verifier's own choice needs to read the drafted tokens.
        self._reads_draft = drafter.block > 0 and (policy.rule.kind != "exact" or policy.min_block > 1)

        device = runner.device
        longest = int(limits.longest_outputs(torch.tensor(longest_source)))
        # EOS, and a draft that starts at the last position
        self.columns = longest + 1 + drafter.block
        self.memory = model.new_memory(capacity, longest_source)
        self.cache = model.new_cache(capacity, self.columns)
        self.cache.prepare(self.cache.longest)
        # Where none may be wanted, a drafter with a model of its own does not come in before it is asked.
        self._late = policy.adaptive and looks and drafter.calls > 0 and not drafter.observes
        self._unread = Unread(capacity)
        self._begin = partial(drafter.begin, capacity, longest_source, self.columns, device)
        self.forbidden = forbidden_ids(limits, device)
        self._permitted = permitted_ids(limits, model.options.vocabulary, device)
        # The newest token of each row and, where a drafter puts it there, the draft behind it: what a step reads.
        width = 1 + drafter.block if self._fused else 1
        self._ids = torch.full((capacity, width), START, dtype=torch.int64, device=device)
        self._room = self._ids[:, 1:] if self._fused else None
        self.outputs = Outputs(capacity, self.columns, device, self._ids[:, 0])
        self.longest = torch.zeros(capacity, dtype=torch.int64, device=device)
        # By source length, looked up: working it out takes five kernels for every new sentence.
        self._longest_of = limits.longest_outputs(torch.arange(longest_source + 1)).to(device)
        self.ticket = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        if not self._late:
            self.state  # noqa: B018 (made once, and now)
        self.recorded = runner.records and drafter.buffers(self.state) is not None
        """whether what is done here may come from a recording: then few shapes are better than fitting ones"""
        self._nothing = NoDraft().begin(capacity, longest_source, self.columns, device)
        self._arrivals = Arrivals(self.portion, longest_source, runner)
        self._remembering: Callable[[], EncoderState] | None = None
        self._entering: Callable[[], None] | None = None
        self._entering_again: Callable[[], None] | None = None  # the same, if it is a recording
        self._iterating: dict[tuple[int, int], Callable[[], Iteration]] = {}
        self._again: dict[tuple[int, int], Callable[[], Iteration]] = {}  # those that may be called as they are
        self._whole = (drafter.block, drafter.block + 1)  # the key of those that draft all they may
        self._lone_rows: dict[int, LoneRow] = {}

    steady = True
    """whoever wants a table like this one may have it: it keeps its shape, and what it holds of earlier sentences is
    hidden"""

    @cached_property
    def state(self) -> Any:
        """What the drafter remembers."""
        return self._begin()

    @cached_property
    def buffers(self) -> list[Tensor] | None:
        """All that an iteration or an entrance writes; None where the drafter works on the host."""
        of_drafter = self.drafter.buffers(self.state)
        if of_drafter is None:
            return None
        return [*self._own_buffers, *of_drafter]

    @property
    def _own_buffers(self) -> list[Tensor]:
        return [*self.memory.buffers, *self.cache.buffers, *self.outputs.buffers, self._ids, self.longest, self.ticket]

    @property
    def recordings(self) -> int:
        """How many ways of entering and iterating were recorded."""
        return len(self._iterating) + (self._entering is not None) if self.recorded else 0

    @property
    def nbytes(self) -> int:
        """What the tensors take that stay."""
        if self._late and "state" not in self.__dict__:
            return sum(buffer.nbytes for buffer in self._own_buffers)
        return self._nbytes

    @cached_property
    def _nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers or [])

    # --- new sentences -----------------------------------------------------------------------------------------------

    def admit(self, source: Source, rows: list[int], tickets: list[int]) -> None:
        """Open rows for up to a portion of sentences."""
        self._arrivals.send(source, rows, tickets)
        whole = len(rows) == self.portion
        if whole and self._entering_again is not None:
            self._entering_again()  # a recording: nothing of PyTorch's runs here
            return
        with torch.inference_mode():
            self._entrance()() if whole else self._enter(len(rows))

    def _entrance(self) -> Callable[[], None]:
        if self._entering is None:
            enter = partial(self._enter, self.portion)
            self._entering = found = self._record("enter", enter)
            if found is not enter:
                self._entering_again = found
        return self._entering

    def _enter(self, count: int) -> None:
        """Encode the whole portion, and open rows for the first `count` of it."""
        arrivals = self._arrivals
        rows, ids, lengths = arrivals.rows[:count], arrivals.ids[:count], arrivals.lengths[:count]
        memory = self._remembered(count)
        if self._late:
            self._unread.put(rows, Source(ids, lengths), memory)
        else:
            self.drafter.admit(self.state, rows, Source(ids, lengths), memory)
        self.outputs.open(rows)
        self.longest.index_copy_(0, rows, self._longest_of[lengths])
        self.ticket.index_copy_(0, rows, self._arrivals.tickets[:count])

    def _remembered(self, count: int) -> EncoderState:
        """The portion's first sentences, encoded, as far as a call goes; the table has them."""
        arrivals, whole = self._arrivals, self.ticket.shape[0] == 1 and not self.recorded
        if whole and self._remembering is None:
            self._remembering = self.runner.bound(self._encode_source, arrivals.ids, arrivals.lengths)
        encode_source = self._remembering or partial(
            self.runner.call, self._encode_source, arrivals.ids, arrivals.lengths
        )
        memory = encode_source().first(count)
        # A slice where that is all: copying to rows that have to be looked up takes several times as long.
        places: Any = slice(None) if whole else arrivals.rows[:count]
        self.memory.put(places, memory)
        return memory

    @property
    def unread(self) -> bool:
        """Whether there are sentences that the drafter has not read yet."""
        return bool(self._unread)

    @torch.inference_mode()
    def read_along(self) -> None:
        """Let the drafter read them, as far as they are not done."""
        for portion in self._unread.take(self.outputs.done):
            self.drafter.admit(self.state, portion.rows, portion.source, portion.memory)

    # --- draft, verify, commit ---------------------------------------------------------------------------------------

    def knows(self, block: int, window: int) -> bool:
        """Whether there was such an iteration: the first of its kind takes longer than others will."""
        return (block, window) in self._iterating or block in self._lone_rows

    @property
    def prepared(self) -> bool:
        """Whether nothing has to be recorded any more for whole portions of sentences and whole blocks."""
        return not self.recorded or (self._entering is not None and self._whole in self._iterating)

    @torch.inference_mode()
    def prepare(self) -> None:
        """See to that: a recording changes nothing."""
        if not self.prepared:
            self._entrance()
            if self._whole not in self._iterating:
                self._record_iterations(*self._whole)

    def again(self, block: int, window: int) -> Callable[[], Iteration] | None:
        """Such an iteration as a recording, or all in one call, if there is one: it may be called as it is."""
        return self._again.get((block, window))

    def iterate(self, block: int, window: int) -> Iteration:
        """One iteration for all live rows, with `block` drafted tokens; at most `window` came since the last draft."""
        if block and self._unread:
            self.read_along()
        again = self._again.get((block, window))
        if again is not None:
            return again()  # nothing of PyTorch's runs here
        with torch.inference_mode():
            return self._iterate_anew(block, window)

    def _iterate_anew(self, block: int, window: int) -> Iteration:
        key = (block, window)
        if key not in self._iterating:
            if self._judged is not None and self.ticket.shape[0] == 1:
                if block not in self._lone_rows:
                    self._lone_rows[block] = LoneRow(self.outputs, block, partial(self._bind, block))
                lone = self._lone_rows[block]
                state = self.state if block or not self._late else None
                self._iterating[key] = partial(lone.iterate, self.drafter, state, window, self._nothing)
                if lone.alone and self.policy.adaptive:
                    self._again[key] = partial(lone.at_once, window)
                elif lone.alone:
                    # Whatever the window is said to be, the row itself knows better.
                    self._again[key] = self._again[block, block + 1] = lone.again
            else:
                self._record_iterations(block, window)
        return self._iterating[key]()

    def _record_iterations(self, block: int, window: int) -> None:
        iterate = partial(self._iterate, block, window)
        self._iterating[block, window] = found = self._record(f"iterate {block}", iterate)
        if found is not iterate:
            self._again[block, window] = found

    def _iterate(self, block: int, window: int) -> Iteration:
        outputs, drafter = self.outputs, self.drafter
        fused = self._fused
        # Idle rows idle at the front, where there is room.
        start = outputs.start if self._fused else torch.where(outputs.done, 0, outputs.length)
        if block or not drafter.calls:
            view = View(outputs.tokens, start, outputs.done, window, self._room)
            proposal = drafter.propose(self.state, view, block)
        else:
            proposal = self._nothing
        if proposal.placed or not block:
            ids = self._ids[:, : block + 1]
        else:
            ids = torch.cat([self._ids[:, :1], proposal.ids], dim=1)
        found, told = (self._settled if fused else self._settled_slowly)(ids, proposal, start)
        if drafter.observes:
            assert told is not None
            if drafter.ahead is not None and not block:
                drafter.learn_nothing(self.state)
            elif self._judged is not None and drafter.ahead is not None:
                drafter.learn(self.state, told)
            else:
                view = View(outputs.tokens, outputs.length, outputs.done, window, self._room, outputs.newest)
                drafter.observe(self.state, found.accepted, view, told)
        return found

    def _settled(self, ids: Tensor, proposal: Proposal, start: Tensor) -> tuple[Iteration, Tensor | None]:
        """Verify, judge and commit: two kernels behind the model's."""
        policy = self.policy
        logits, hidden = self._verify(ids, start)
        bounds = Bounds(self._permitted, start, self.longest, self._limits.min_length)
        draft = proposal.ids if self._reads_draft and ids.shape[1] > 1 else None
        reading = read_fused(logits, bounds, draft, policy.rule.kind == "top")
        wanted = hidden if self.drafter.observes else None
        return settle_fused(policy.rule, policy.min_block, ids, proposal.count, reading, wanted, self.outputs)

    def _settled_slowly(self, ids: Tensor, proposal: Proposal, start: Tensor) -> tuple[Iteration, Tensor | None]:
        """The same by tensor code; where it can be had in one call, by that."""
        outputs = self.outputs
        active = torch.logical_not(outputs.done)
        positions = start[:, None] if ids.shape[1] == 1 else start[:, None] + outputs.steps[: ids.shape[1]]
        told: Tensor | None
        if self._judged is None:
            verdict, told = self._verified(ids, proposal, start, positions)
        else:
            at_once = self._judge_at_once(ids, proposal.count, start)
            verdict, told = at_once.verdict, at_once.told
        found = settle(verdict, active, positions, ids, proposal.count, outputs)
        if self.policy.adaptive:
            outputs.accepted.copy_(found.accepted)
            outputs.drafted.copy_(found.drafted)
        if self._fused:
            outputs.start.copy_(torch.where(outputs.done, 0, outputs.length))
        return found, told

    def _judge_at_once(self, ids: Tensor, count: Tensor, start: Tensor) -> Judged:
        program = self._judged if ids.shape[1] > 1 else self._judged_alone
        assert program is not None
        limits, model = (self.longest, self.forbidden), (self.cache, self.memory)
        found: Judged = self.runner.call(program, ids, count, start, *limits, *model)
        return found

    def _bind(self, block: int, desk: Desk) -> Attempts:
        """A whole iteration, in one call where that is had; for a drafter that has to be asked, what comes after it."""
        assert self._judged is not None
        runner = self.runner
        for_judge = (desk.count, desk.start, self.longest, self.forbidden, self.cache, self.memory)
        view = View(self.outputs.tokens, desk.start, self.outputs.done)
        asked = self.drafter.asked(self.state, view, desk.window, block) if block else None
        if asked is not None and runner.binds:
            draft, for_draft = asked
            return Attempts(whole=runner.bound(at_once(draft, self._judged), desk.newest, for_draft, for_judge))
        judge = self._judged if block else self._judged_alone
        assert judge is not None
        return Attempts(judge=runner.bound(judge, desk.ids, *for_judge))

    def _verified(
        self, ids: Tensor, proposal: Proposal, start: Tensor, positions: Tensor
    ) -> tuple[Verdict, Tensor | None]:
        """The verdict on a draft, and the state that chose each row's newest token where the drafter observes."""
        logits, hidden = self._verify(ids, start)
        verdict = self._judge(proposal, logits, positions)
        if not self.drafter.observes:
            return verdict, None
        at_newest = (verdict.committed - 1)[:, None, None].expand(-1, 1, hidden.shape[2])
        return verdict, hidden.gather(1, at_newest)[:, 0]

    def _verify(self, ids: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and states of the step's slots."""
        found: tuple[Tensor, Tensor] = self.runner.call(self.verify, ids, start, self.cache, self.memory)
        return found

    def _judge(self, proposal: Proposal, logits: Tensor, positions: Tensor) -> Verdict:
        policy, draft = self.policy, proposal.ids if self._reads_draft else None
        # Where looking at a number costs nothing, only what is committed is normalised: half a step's time in int8.
        later = logits.device.type == "cpu" and not self.runner.records
        ranked = policy.rule.kind == "top"
        limits = (self.longest, self.forbidden, self._limits.min_length)
        reading: Reading = read(logits, positions, *limits, draft, ranked, normalised=not later)
        verdict = judge(policy.rule, policy.min_block, proposal, reading)
        if not later:
            return verdict
        return verdict.scored(normalise(verdict.log_probability, logits, int(verdict.committed.max())))

    def _record(self, name: str, function: Callable[[], R]) -> Callable[[], R]:
        if not self.runner.records:
            return function
        buffers = self.buffers
        return function if buffers is None else self.runner.record(name, function, buffers)
