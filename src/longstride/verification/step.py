"""One iteration: draft, verify, accept, commit, written once as a function of tensors.

It reads and writes nothing but tensors that stay where they are, so that a runner may run it, capture it, or trace it
and carry out the graph (:mod:`longstride.verification.step_programs`): for one row or many, whoever drafts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from longstride import ops
from longstride.contract import DEFAULT_IDS, Limits, OptionError, Program, SpecialIds
from longstride.engine.outputs import Rows
from longstride.nn.cache import Cache, EncoderState
from longstride.verification.acceptance import (
    EXACT,
    LogitSummary,
    Rule,
    Sampling,
    force,
    force_ends,
    judge,
    nothing_left,
    summarise,
)
from longstride.verification.drafting import Drafter, Proposal, View, nothing
from longstride.verification.kernels import Bounds, summarise_fused
from longstride.verification.kernels import settle as settle_fused
from longstride.verification.ngrams import drafted_inputs, within
from longstride.verification.prefixes import TablePrefixes
from longstride.verification.sampling import Draws
from longstride.verification.tree import Tree, follow

Call = Callable[..., Any]
"""(program, what it takes) -> what it gives"""


@dataclass(frozen=True)
class StepResult:
    """What one iteration did, in the terms of :class:`longstride.contract.Step`."""

    active: Tensor
    positions: Tensor
    ids: Tensor
    written: Tensor
    draft: Tensor
    parents: Tensor | None = None


@dataclass(frozen=True)
class Acceptance:
    """How drafts are judged."""

    rule: Rule = EXACT
    min_block: int = 1
    """commit at least so many tokens per iteration, the verifier's own included"""
    sampling: Sampling | None = None
    """draw the verifier's own tokens; None: they are the likeliest"""

    def __post_init__(self) -> None:
        if self.sampling is not None and self.reads_draft:
            raise OptionError("temperature expects accept=exact and min_block=1: what is drawn is judged exactly.")

    @property
    def reads_draft(self) -> bool:
        """Only a rule that tolerates more than the verifier's own choice needs to read the drafted tokens."""
        return self.rule.kind != "exact" or self.min_block > 1


@dataclass(frozen=True)
class Batch:
    """All that an iteration is about, as tensors or as values of a graph."""

    rows: Rows
    longest: Tensor
    """[rows] how long outputs may be"""
    forbidden: Tensor
    """[n] ids that are never chosen"""
    window: int | Tensor
    """how many tokens came since the last draft, at most: a number, or a tensor [1]"""
    cache: Cache
    memory: EncoderState
    drafter: Any
    """what the drafter remembers"""
    proposal: Proposal | None = None
    """the draft, where the drafter was asked beforehand"""
    looks: bool = True
    """the host may look at a number without waiting for a device, and none of it is recorded"""
    ids: Tensor | None = None
    """[rows, most slots] where newest tokens lie with room for a draft behind them; only with kernels of our own"""
    permitted: Tensor | None = None
    """[vocabulary] uint8, 0 on forbidden ids; likewise"""
    streams: Tensor | None = None
    """[rows] where each row's random numbers come from; only where tokens are drawn"""
    prefixes: TablePrefixes | None = None
    """what outputs begin with; only under limits that have them"""


@dataclass(frozen=True)
class StepSlots:
    """What the verifier reads in one step."""

    ids: Tensor
    """[rows, step] the newest token of each row, and the draft"""
    start: Tensor
    """[rows] where each row's step begins"""
    tree: Tree | None
    """the draft's shape, where it is no chain"""

    @staticmethod
    def of(batch: Batch, draft: Proposal) -> StepSlots:
        """Those of a draft."""
        start = _start(batch)
        if batch.ids is not None and (draft.placed or not draft.ids.shape[1]):
            ids = batch.ids[:, : draft.ids.shape[1] + 1]
        else:
            ids = torch.cat([batch.rows.newest[:, None], draft.ids], dim=1)
        if draft.parents is None:
            return StepSlots(ids, start, None)
        return StepSlots(ids, start, Tree.of(draft.parents) if draft.shape is None else Tree(*draft.shape))


class VerifyStep:
    """Iterations of one verifier and one drafter."""

    def __init__(
        self,
        verify: Program,
        drafter: Drafter,
        acceptance: Acceptance,
        limits: Limits,
        special: SpecialIds = DEFAULT_IDS,
        call: Call | None = None,
    ) -> None:
        """`call` carries out the drafter's part and the verifier's, where they are told apart."""
        self.verifier, self.drafter, self.acceptance = verify, drafter, acceptance
        self.limits, self.special, self._eos = limits, special, special.eos
        self._watches_repeats = limits.watches_repeats
        self._call = call or _run
        self._draft = Program("draft", drafter.propose)

    def run(self, batch: Batch, block: int) -> StepResult:
        """Draft up to `block` tokens, verify, accept, commit."""
        result, hidden = self.verify(batch, self.propose(batch, block))
        if hidden is not None:
            self.observe(batch, hidden)
        return result

    # --- its parts -------------------------------------------------------------------------------------------------

    def propose(self, batch: Batch, block: int) -> Proposal:
        """The draft."""
        view = self.view(batch)
        if not block:
            return nothing(view)
        found: Proposal = self._call(self._draft, batch.drafter, view, block)
        return found

    def verify(self, batch: Batch, draft: Proposal) -> tuple[StepResult, Tensor | None]:
        """Judge a draft and commit what comes of it; the state that chose each row's newest token, if wanted."""
        slots = StepSlots.of(batch, draft)
        return self.commit(batch, draft, slots, *self.read(batch, slots))

    def read(self, batch: Batch, slots: StepSlots) -> tuple[Tensor, Tensor]:
        """What the verifier says of a step's slots: logits [rows, step, vocabulary] and states [rows, step, width]"""
        verify = (
            self.verifier if slots.tree is None else replace(self.verifier, function=_of_tree(self.verifier, slots))
        )
        found: tuple[Tensor, Tensor] = self._call(verify, slots.ids, slots.start, batch.cache, batch.memory)
        return found

    def commit(
        self, batch: Batch, draft: Proposal, slots: StepSlots, logits: Tensor, hidden: Tensor
    ) -> tuple[StepResult, Tensor | None]:
        """Judge a draft by what the verifier said, and commit what comes of it."""
        rows, start, ids, tree = batch.rows, slots.start, slots.ids, slots.tree
        if batch.permitted is not None:
            return self._commit_fused(batch, draft, slots, logits, hidden)
        step, acceptance = ids.shape[1], self.acceptance
        positions = ops.slots_from(start, step)
        places = positions if tree is None else tree.depth + start[:, None]
        choosable = logits
        if self._watches_repeats:
            inputs = drafted_inputs(rows.tokens, start, ids, self.special.start, tree)
            choosable = within(self.limits, logits, *inputs)
        if batch.prefixes is not None:
            choosable = batch.prefixes.allowed(choosable, places)
        if acceptance.sampling is None:
            wanted = draft.ids if tree is None and acceptance.reads_draft and draft.ids.shape[1] else None
            reading = self._summarise(batch, choosable, places, wanted)
        else:
            reading = self._draw(batch, choosable, places, draft)
        chain = draft
        if tree is not None:
            assert draft.parents is not None
            parents = draft.parents
            at_parents = LogitSummary(reading.top.gather(1, parents))
            if acceptance.reads_draft:
                at_parents = self._summarise(batch, ops.take(choosable, parents), places.gather(1, parents), draft.ids)
            path, chain, reading = follow(
                tree, acceptance.rule, draft, at_parents, reading, self._eos, acceptance.min_block
            )
            ops.compact_path(batch.cache.keys, batch.cache.values, path, start)
            hidden = ops.take(hidden, path)
        if acceptance.sampling is not None:
            reading = LogitSummary(reading.top.clamp(min=0))  # where nobody gets to
        verdict = judge(acceptance.rule, acceptance.min_block, chain, reading, self._eos)
        active = ~rows.done
        committed = torch.where(active, verdict.committed, 0)
        written = ops.arange(step, committed) < committed[:, None]
        # Sums over the vocabulary are what costs: only of what some row commits.
        most = ops.largest(verdict.committed) if batch.looks else step
        said = logits[:, :most] if tree is None else ops.take(logits, path[:, :most])
        scores = ops.log_shares(said, verdict.ids[:, :most, None])[..., 0]
        ops.accumulate(rows.log_probability, torch.where(written[:, :most], scores, 0.0))
        # The rest of the ids is written too, beyond the row's new length, where nobody looks: that takes no choosing.
        # So are those of rows that are done, from their EOS on if need be, which nobody reads either.
        ops.append(rows.tokens, verdict.ids, rows.length.clamp(max=rows.tokens.shape[1] - step))
        ops.assign(rows.length, rows.length + committed)
        ops.assign(rows.newest, verdict.newest)
        ops.assign(rows.drafted, torch.where(active, draft.count, 0))
        ops.assign(rows.accepted, torch.where(active, verdict.accepted, 0))
        ops.assign(rows.done, rows.done | (verdict.newest == self._eos))
        state = ops.take(hidden, verdict.committed[:, None] - 1)[:, 0] if self.drafter.observes else None
        return StepResult(active, positions, verdict.ids, written, ids[:, 1:], _kept(draft.parents)), state

    def _summarise(self, batch: Batch, logits: Tensor, positions: Tensor, draft: Tensor | None) -> LogitSummary:
        """What the verifier says under all limits."""
        limits, ranked = self.limits, self.acceptance.rule.kind == "top"
        bounds = (batch.forbidden, limits.min_length)
        # Only what came before can leave no token: ids that are banned everywhere are refused if these are all.
        by_prefix = self._watches_repeats or batch.prefixes is not None
        ends = nothing_left(logits, positions, *bounds, self._eos) if by_prefix else None
        reading = summarise(logits, positions, batch.longest, *bounds, draft, ranked, self._eos, ends)
        if batch.prefixes is not None:
            tokens, where = batch.prefixes.at(positions)
            reading = force(reading, tokens, where & (positions < batch.longest[:, None]), logits, draft)
        return force_ends(reading, limits, positions, batch.longest, logits, draft)

    def _draw(self, batch: Batch, logits: Tensor, positions: Tensor, draft: Proposal) -> LogitSummary:
        """The verifier's tokens under all limits, drawn; -1 in slots that need none."""
        sampling, limits = self.acceptance.sampling, self.limits
        assert sampling is not None
        assert batch.streams is not None
        draws = Draws(sampling, batch.streams, batch.longest, batch.forbidden, limits, self._eos, batch.prefixes)
        if not batch.looks:
            return LogitSummary(draws.all(logits, positions))
        live = replace(draft, count=torch.where(batch.rows.done, 0, draft.count))
        return LogitSummary(draws.needed(logits, positions, live))

    def _commit_fused(
        self, batch: Batch, draft: Proposal, slots: StepSlots, logits: Tensor, hidden: Tensor
    ) -> tuple[StepResult, Tensor | None]:
        """The same by two kernels behind the model's, or three where accepted nodes of a tree are moved together."""
        rows, acceptance, ids, tree = batch.rows, self.acceptance, slots.ids, slots.tree
        assert batch.permitted is not None
        assert rows.start is not None
        limits = self.limits
        assert not limits.watches_repeats, "kernels know no n-grams"
        assert batch.prefixes is None, "kernels know no prefixes"
        depth = None if tree is None else tree.depth
        bounds = Bounds(batch.permitted, rows.start, batch.longest, limits.min_length, self._eos, depth)
        wanted = draft.ids if acceptance.reads_draft and ids.shape[1] > 1 else None
        reading = summarise_fused(logits, bounds, wanted, acceptance.rule.kind == "top")
        if limits.forced_first is not None or limits.forced_last is not None:
            positions = ops.slots_from(rows.start, ids.shape[1]) if depth is None else depth + rows.start[:, None]
            reading = force_ends(reading, limits, positions, batch.longest, logits, wanted)
        told = hidden if self.drafter.observes else None
        found, path, state = settle_fused(
            acceptance.rule, acceptance.min_block, ids, draft, reading, told, rows, self._eos
        )
        result = replace(StepResult(*found), parents=_kept(draft.parents))
        if path is not None:
            ops.compact_path(batch.cache.keys, batch.cache.values, path, result.positions[:, 0])
        return result, state

    def observe(self, batch: Batch, hidden: Tensor) -> None:
        """Tell the drafter what became of its draft."""
        rows = batch.rows
        self.drafter.observe(batch.drafter, rows.accepted, self._view(batch, rows.length), hidden)

    def judge(self, batch: Batch, draft: Proposal, logits: Tensor, hidden: Tensor) -> StepResult:
        """The rest of an iteration that has been read."""
        result, state = self.commit(batch, draft, StepSlots.of(batch, draft), logits, hidden)
        if state is not None:
            self.observe(batch, state)
        return result

    @property
    def fuses(self) -> bool:
        """Whether kernels of our own can judge: they know no n-grams, prefixes and random numbers, and of trees the
        exact rule alone."""
        return not self.judges_apart and not (self.drafter.trees and self.acceptance.reads_draft)

    @property
    def judges_apart(self) -> bool:
        """Whether no graph can judge: n-grams, prefixes and random numbers are tensor code of PyTorch's alone."""
        return self.limits.watches_repeats or self.limits.prefixes or self.acceptance.sampling is not None

    def view(self, batch: Batch) -> View:
        """What the drafter is shown before an iteration."""
        return self._view(batch, _start(batch))

    def _view(self, batch: Batch, length: Tensor) -> View:
        rows, room = batch.rows, None if batch.ids is None else batch.ids[:, 1:]
        limits = (batch.longest, batch.forbidden)
        return View(rows.tokens, length, rows.newest, rows.done, *limits, batch.window, room)


def _kept(parents: Tensor | None) -> Tensor | None:
    """A copy for whoever reads the trace: a drafter may grow its next tree in the same tensor."""
    return None if parents is None else parents + 0


def _start(batch: Batch) -> Tensor:
    """[rows] where each row's step begins: idle rows idle at the front, where there is room."""
    rows = batch.rows
    return torch.where(rows.done, 0, rows.length) if rows.start is None else rows.start


def _run(program: Program, *arguments: Any) -> Any:
    return program.function(*arguments)


def _of_tree(verify: Program, slots: StepSlots) -> Callable[..., Any]:
    """The verifier's function for slots that are no chain."""
    tree = slots.tree
    assert tree is not None
    return partial(verify.function, rule=ops.TreeRule(slots.start, tree.above, tree.paths), depth=tree.depth)
