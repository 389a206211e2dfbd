"""One iteration: draft, verify, accept, commit, written once as a function of tensors.

It reads and writes nothing but tensors that stay where they are, so that a runner may run it, capture it, or trace it
and carry out the graph: for one row or many, whoever drafts. A drafter that cannot be traced is asked from outside, and
the rest is one program all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from longstride import ops
from longstride.contract import DEFAULT_IDS, Feeds, GraphSpec, Limits, OptionError, Program, SpecialIds
from longstride.contract.running import Shape
from longstride.engine.outputs import Rows
from longstride.nn.cache import Cache, EncoderState
from longstride.nn.programs import cache_of, memory_feeds, memory_of
from longstride.ops.trace import Specification, recorded
from longstride.verification.acceptance import EXACT, LogitSummary, Rule, Sampling, force_first, judge, summarise
from longstride.verification.drafting import Drafter, DrafterGraph, Proposal, View, nothing
from longstride.verification.kernels import Bounds, summarise_fused
from longstride.verification.kernels import settle as settle_fused
from longstride.verification.ngrams import drafted_inputs, without_repeats
from longstride.verification.sampling import Draws
from longstride.verification.tree import Tree, follow

I64 = torch.int64

Call = Callable[..., Any]
"""(program, what it takes) -> what it gives"""

OF_DRAFT = "draft_"
"""What the drafter's names begin with in a graph."""

ROWS: Specification = {
    "tokens": (I64, ("rows", "columns")),
    "length": (I64, ("rows",)),
    "newest": (I64, ("rows",)),
    "done": (torch.bool, ("rows",)),
    "log_probability": (torch.float64, ("rows",)),
    "drafted": (I64, ("rows",)),
    "accepted": (I64, ("rows",)),
}
"""What an iteration keeps of every row."""


@dataclass(frozen=True)
class StepResult:
    """What one iteration did, in the terms of :class:`longstride.contract.Step`."""

    active: Tensor
    positions: Tensor
    ids: Tensor
    written: Tensor
    draft: Tensor


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
        self._verify, self._drafter, self._acceptance = verify, drafter, acceptance
        self._limits, self._special, self._eos = limits, special, special.eos
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
        view = self._view(batch, _start(batch))
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
        verify = self._verify if slots.tree is None else replace(self._verify, function=_of_tree(self._verify, slots))
        found: tuple[Tensor, Tensor] = self._call(verify, slots.ids, slots.start, batch.cache, batch.memory)
        return found

    def commit(
        self, batch: Batch, draft: Proposal, slots: StepSlots, logits: Tensor, hidden: Tensor
    ) -> tuple[StepResult, Tensor | None]:
        """Judge a draft by what the verifier said, and commit what comes of it."""
        rows, start, ids, tree = batch.rows, slots.start, slots.ids, slots.tree
        if batch.permitted is not None:
            return self._commit_fused(batch, draft, slots, logits, hidden)
        step, acceptance = ids.shape[1], self._acceptance
        positions = ops.slots_from(start, step)
        choosable = logits
        if n := self._limits.no_repeat_ngram:
            prefixes = drafted_inputs(rows.tokens, start, ids, self._special.start, tree)
            choosable = without_repeats(logits, *prefixes, n)
        places = positions if tree is None else tree.depth + start[:, None]
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
        state = ops.take(hidden, verdict.committed[:, None] - 1)[:, 0] if self._drafter.observes else None
        return StepResult(active, positions, verdict.ids, written, ids[:, 1:]), state

    def _summarise(self, batch: Batch, logits: Tensor, positions: Tensor, draft: Tensor | None) -> LogitSummary:
        """What the verifier says under all limits."""
        limits, ranked = self._limits, self._acceptance.rule.kind == "top"
        bounds = (batch.longest, batch.forbidden, limits.min_length)
        reading = summarise(logits, positions, *bounds, draft, ranked, self._eos)
        if limits.forced_first is None:
            return reading
        return force_first(reading, limits.forced_first, positions, logits, draft)

    def _draw(self, batch: Batch, logits: Tensor, positions: Tensor, draft: Proposal) -> LogitSummary:
        """The verifier's tokens under all limits, drawn; -1 in slots that need none."""
        sampling, limits = self._acceptance.sampling, self._limits
        assert sampling is not None
        assert batch.streams is not None
        bounds = (batch.longest, batch.forbidden, limits.min_length, limits.forced_first, self._eos)
        draws = Draws(sampling, batch.streams, *bounds)
        if not batch.looks:
            return LogitSummary(draws.all(logits, positions))
        live = replace(draft, count=torch.where(batch.rows.done, 0, draft.count))
        return LogitSummary(draws.needed(logits, positions, live))

    def _commit_fused(
        self, batch: Batch, draft: Proposal, slots: StepSlots, logits: Tensor, hidden: Tensor
    ) -> tuple[StepResult, Tensor | None]:
        """The same by two kernels behind the model's, or three where accepted nodes of a tree are moved together."""
        rows, acceptance, ids, tree = batch.rows, self._acceptance, slots.ids, slots.tree
        assert batch.permitted is not None
        assert rows.start is not None
        limits = self._limits
        assert not limits.no_repeat_ngram, "kernels know no n-grams"
        depth = None if tree is None else tree.depth
        bounds = Bounds(batch.permitted, rows.start, batch.longest, limits.min_length, self._eos, depth)
        wanted = draft.ids if acceptance.reads_draft and ids.shape[1] > 1 else None
        reading = summarise_fused(logits, bounds, wanted, acceptance.rule.kind == "top")
        if limits.forced_first is not None:
            positions = ops.slots_from(rows.start, ids.shape[1]) if depth is None else depth + rows.start[:, None]
            reading = force_first(reading, limits.forced_first, positions, logits, wanted)
        told = hidden if self._drafter.observes else None
        found, path, state = settle_fused(
            acceptance.rule, acceptance.min_block, ids, draft, reading, told, rows, self._eos
        )
        result = StepResult(*found)
        if path is not None:
            ops.compact_path(batch.cache.keys, batch.cache.values, path, result.positions[:, 0])
        return result, state

    def observe(self, batch: Batch, hidden: Tensor) -> None:
        """Tell the drafter what became of its draft."""
        rows = batch.rows
        self._drafter.observe(batch.drafter, rows.accepted, self._view(batch, rows.length), hidden)

    def _view(self, batch: Batch, length: Tensor) -> View:
        rows, room = batch.rows, None if batch.ids is None else batch.ids[:, 1:]
        limits = (batch.longest, batch.forbidden)
        return View(rows.tokens, length, rows.newest, rows.done, *limits, batch.window, room)

    # --- as programs -----------------------------------------------------------------------------------------------

    def whole(self, block: int) -> Program:
        """(batch) -> StepResult; without a graph where the drafter cannot be traced"""

        def function(batch: Batch) -> StepResult:
            return self.run(batch, block)

        drafter, verify = self._drafter.graph, self._verify.graph
        if drafter is None or verify is None or self.judges_apart:
            return Program("step", function)
        return Program("step", function, self._spec(verify, block, drafter))

    def verifying(self, block: int, tree: bool) -> Program:
        """(batch with a proposal) -> StepResult, and the hidden state for who observes [rows, width]"""

        def function(batch: Batch) -> tuple[StepResult, Tensor | None]:
            assert batch.proposal is not None
            return self.verify(batch, batch.proposal)

        verify = self._verify.graph
        spec = None if verify is None else self._spec(verify, block, None, tree)
        return Program("verify-tree" if tree else "verify-step", function, spec)

    @property
    def fuses(self) -> bool:
        """Whether kernels of our own can judge: they know no n-grams and no random numbers, and of trees the exact
        rule alone."""
        return not self.judges_apart and not (self._drafter.trees and self._acceptance.reads_draft)

    @property
    def judges_apart(self) -> bool:
        """Whether no graph can judge: n-grams of a prefix and random numbers are tensor code of PyTorch's alone."""
        return self._limits.no_repeat_ngram > 0 or self._acceptance.sampling is not None

    def reading(self, block: int, drafts: bool, tree: bool = False) -> Program:
        """(batch, with a proposal unless it `drafts`) -> the proposal, logits and states, for :meth:`judge`"""

        def function(batch: Batch) -> tuple[Proposal, Tensor, Tensor]:
            draft = self.propose(batch, block) if drafts else batch.proposal
            assert draft is not None
            return draft, *self.read(batch, StepSlots.of(batch, draft))

        drafter, verify = self._drafter.graph if drafts else None, self._verify.graph
        name = "read-tree" if tree else "read-draft" if drafts else "read-step"
        if verify is None or (drafts and drafter is None):
            return Program(name, function)
        return Program(name, function, self._spec(verify, block, drafter, tree, judged=False))

    def judge(self, batch: Batch, draft: Proposal, logits: Tensor, hidden: Tensor) -> StepResult:
        """The rest of an iteration that has been read."""
        result, state = self.commit(batch, draft, StepSlots.of(batch, draft), logits, hidden)
        if state is not None:
            self.observe(batch, state)
        return result

    def _spec(
        self, verify: GraphSpec, block: int, drafter: DrafterGraph | None, tree: bool = False, judged: bool = True
    ) -> GraphSpec:
        """The graph's, of a whole iteration or without the drafter's part; or of what comes before judging."""
        step, tells = block + 1, judged and drafter is None and self._drafter.observes
        own = {} if drafter is None else {**_prefixed(drafter.inputs), **_prefixed(drafter.state)}
        inputs = {name: value for name, value in verify.inputs.items() if name not in ("ids", "start")}
        if judged or (drafter is not None and block):
            inputs |= {"longest": (I64, ("rows",)), "forbidden": (I64, ("banned",))}
        if drafter is None and block:
            inputs |= {"draft": (I64, ("rows", block)), "count": (I64, ("rows",))}
        if tree:
            inputs["parents"] = (I64, ("rows", block))
        if drafter is not None and drafter.reads_window and block:
            inputs["window"] = (I64, (1,))
        state = {**verify.state, **(ROWS if judged else {})}
        inputs |= {} if judged else {name: ROWS[name] for name in ("tokens", "length", "newest", "done")}
        read = set() if drafter is None else {OF_DRAFT + name for name in drafter.inputs}
        if block:  # without a draft nobody reads what a drafter remembers
            inputs |= {name: value for name, value in own.items() if name in read}
            state |= {name: value for name, value in own.items() if name not in read}
        kept = [name for name in own if name in inputs or name in state]

        def batch_of(given: Mapping[str, Any]) -> Batch:
            rows = Rows(*(given.get(name) for name in ROWS))  # type: ignore[arg-type]
            proposal = None
            if "draft" in inputs:
                proposal = Proposal(given["draft"], given["count"], given.get("parents"))
            if drafter is None and proposal is None:
                proposal = Proposal(rows.tokens[:, :0], torch.zeros_like(rows.length))
            parts = {name.removeprefix(OF_DRAFT): given[name] for name in kept}
            memory = None if drafter is None or not kept else drafter.state_of(parts)
            small = (given.get("longest"), given.get("forbidden"), given.get("window", step))
            return Batch(
                rows,
                *small,  # type: ignore[arg-type]
                cache_of(given),
                memory_of(given),
                memory,
                proposal,
            )

        def run(batch: Batch) -> tuple[Any, ...]:
            if not judged:
                draft = batch.proposal if drafter is None else self.propose(batch, block)
                assert draft is not None
                return draft, *self.read(batch, StepSlots.of(batch, draft))
            if drafter is None:
                assert batch.proposal is not None
                return self.verify(batch, batch.proposal)
            return self.run(batch, block), None

        def feeds(batch: Batch) -> Feeds:
            rows = batch.rows
            parts = {} if drafter is None or not kept else drafter.parts(batch.drafter)
            given = {
                **memory_feeds(batch.memory),
                "longest": batch.longest,
                "forbidden": batch.forbidden,
                **{OF_DRAFT + name: tensor for name, tensor in parts.items()},
                **{name: getattr(rows, name) for name in ROWS},
                "keys": batch.cache.keys,
                "values": batch.cache.values,
            }
            if "draft" in inputs and batch.proposal is not None:
                given |= {"draft": batch.proposal.ids, "count": batch.proposal.count}
                given |= {"parents": batch.proposal.parents} if tree else {}
            if "window" in inputs:
                assert isinstance(batch.window, Tensor)
                given["window"] = batch.window
            return Feeds({name: given[name] for name in inputs}, {name: given[name] for name in state}, {"step": step})

        wide = ("rows", step)
        outputs: dict[str, tuple[torch.dtype, Shape]] = {
            "active": (torch.bool, ("rows",)),
            "positions": (I64, wide),
            "ids": (I64, wide),
            "written": (torch.bool, wide),
        }
        if not judged:
            outputs = {name: verify.outputs[name] for name in ("logits", "hidden")}
        if drafter is not None and block:
            outputs["proposed"] = (I64, ("rows", block))
            outputs |= {} if judged else {"proposed_count": (I64, ("rows",))}
            if self._drafter.trees and not judged:
                outputs["proposed_parents"] = (I64, ("rows", block))
        if tells:
            outputs["hidden"] = verify.outputs["hidden"][0], ("rows", verify.outputs["hidden"][1][2])

        def results(found: tuple[Any, ...]) -> dict[str, Any]:
            if judged:
                result, hidden = found
                every = {**vars(result), "proposed": result.draft, "hidden": hidden}
            else:
                draft, logits, hidden = found
                every = {"logits": logits, "hidden": hidden, "proposed": draft.ids, "proposed_count": draft.count}
                every["proposed_parents"] = draft.parents
            return {name: every[name] for name in outputs}

        def result(found: Mapping[str, Tensor], fed: Feeds) -> Any:
            if not judged:
                none = fed.inputs["tokens"][:, :0], torch.zeros_like(fed.inputs["length"])
                ids = found.get("proposed", fed.inputs.get("draft", none[0]))
                count = found.get("proposed_count", fed.inputs.get("count", none[1]))
                parents = found.get("proposed_parents", fed.inputs.get("parents"))
                return Proposal(ids, count, parents), found["logits"], found["hidden"]
            draft = found.get("proposed", fed.inputs.get("draft"))
            draft = found["ids"][:, :0] if draft is None else draft
            done = StepResult(found["active"], found["positions"], found["ids"], found["written"], draft)
            return done if drafter is not None else (done, found.get("hidden"))

        layered = verify.layered | (frozenset() if drafter is None else {OF_DRAFT + name for name in drafter.layered})
        return GraphSpec(
            modules=(*verify.modules, *(() if drafter is None or not block else drafter.modules)),
            feeds=feeds,
            inputs=inputs,
            state=state,
            outputs=outputs,
            record=recorded(run, inputs, state, lambda given: (batch_of(given),), results),
            result=result,
            layered=frozenset(name for name in layered if name in inputs or name in state),
            settings=(
                *verify.settings,
                *(block, self._acceptance, self._limits.min_length, self._limits.forced_first, self._special),
                *(() if drafter is None else drafter.settings),
            ),
        )


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


def _prefixed(values: Specification) -> dict[str, tuple[torch.dtype, Shape]]:
    """A drafter's, by the names that they have in a step's graph; of its dimensions rows alone are the verifier's."""
    return {
        OF_DRAFT + name: (
            dtype,
            tuple(OF_DRAFT + size if isinstance(size, str) and size != "rows" else size for size in shape),
        )
        for name, (dtype, shape) in values.items()
    }
