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
from longstride.contract import EOS, Feeds, GraphSpec, Program
from longstride.contract.running import Shape
from longstride.engine.outputs import Rows
from longstride.nn.cache import Cache, EncoderState
from longstride.nn.programs import cache_of, memory_feeds, memory_of
from longstride.ops.trace import Specification, recorded
from longstride.verification.acceptance import EXACT, Rule, judge, summarise
from longstride.verification.drafting import Drafter, DrafterGraph, Proposal, View, nothing
from longstride.verification.kernels import Bounds, summarise_fused
from longstride.verification.kernels import settle as settle_fused
from longstride.verification.tree import Tree, compact, follow

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


class VerifyStep:
    """Iterations of one verifier and one drafter."""

    def __init__(
        self,
        verify: Program,
        drafter: Drafter,
        acceptance: Acceptance,
        min_length: int,
        eos: int = EOS,
        call: Call | None = None,
    ) -> None:
        """`call` carries out the drafter's part and the verifier's, where they are told apart."""
        self._verify, self._drafter, self._acceptance = verify, drafter, acceptance
        self._min_length, self._eos = min_length, eos
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
        rows, start = batch.rows, _start(batch)
        if batch.ids is not None and (draft.placed or not draft.ids.shape[1]):
            ids = batch.ids[:, : draft.ids.shape[1] + 1]
        else:
            ids = torch.cat([rows.newest[:, None], draft.ids], dim=1)
        tree = None if draft.parents is None else Tree.of(draft.parents)
        verify = self._verify if tree is None else replace(self._verify, function=_of_tree(self._verify, tree, start))
        logits, hidden = self._call(verify, ids, start, batch.cache, batch.memory)
        if batch.permitted is not None:
            assert tree is None, "kernels judge chains"
            return self._commit_fused(batch, ids, draft, logits, hidden)
        step, acceptance = ids.shape[1], self._acceptance
        positions = ops.slots_from(start, step)
        limits = (batch.longest, batch.forbidden, self._min_length)
        if tree is None:
            wanted = draft.ids if acceptance.reads_draft and draft.ids.shape[1] else None
            reading = summarise(logits, positions, *limits, wanted, acceptance.rule.kind == "top", self._eos)
            verdict = judge(acceptance.rule, acceptance.min_block, draft, reading, self._eos)
        else:
            assert draft.parents is not None
            assert not acceptance.reads_draft, "trees are judged exactly"
            reading = summarise(logits, tree.depth + start[:, None], *limits, eos=self._eos)
            path, chain, reading = follow(tree, acceptance.rule, draft, draft.parents, reading, self._eos)
            compact(batch.cache, start, path)
            logits, hidden = ops.take(logits, path), ops.take(hidden, path)
            verdict = judge(acceptance.rule, acceptance.min_block, chain, reading, self._eos)
        active = ~rows.done
        committed = torch.where(active, verdict.committed, 0)
        written = ops.arange(step, committed) < committed[:, None]
        # Sums over the vocabulary are what costs: only of what some row commits.
        most = ops.largest(verdict.committed) if batch.looks else step
        scores = ops.log_shares(logits[:, :most], verdict.ids[:, :most, None])[..., 0]
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

    def _commit_fused(
        self, batch: Batch, ids: Tensor, draft: Proposal, logits: Tensor, hidden: Tensor
    ) -> tuple[StepResult, Tensor | None]:
        """The same by two kernels behind the model's."""
        rows, acceptance = batch.rows, self._acceptance
        assert batch.permitted is not None
        assert rows.start is not None
        bounds = Bounds(batch.permitted, rows.start, batch.longest, self._min_length, self._eos)
        wanted = draft.ids if acceptance.reads_draft and ids.shape[1] > 1 else None
        reading = summarise_fused(logits, bounds, wanted, acceptance.rule.kind == "top")
        told = hidden if self._drafter.observes else None
        found, state = settle_fused(
            acceptance.rule, acceptance.min_block, ids, draft.count, reading, told, rows, self._eos
        )
        return StepResult(*found), state

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
        spec = None if drafter is None or verify is None else self._spec(verify, block, drafter)
        return Program("step", function, spec)

    def verifying(self, block: int, tree: bool) -> Program:
        """(batch with a proposal) -> StepResult, and the hidden state for who observes [rows, width]"""

        def function(batch: Batch) -> tuple[StepResult, Tensor | None]:
            assert batch.proposal is not None
            return self.verify(batch, batch.proposal)

        verify = self._verify.graph
        spec = None if verify is None else self._spec(verify, block, None, tree)
        return Program("verify-tree" if tree else "verify-step", function, spec)

    def _spec(self, verify: GraphSpec, block: int, drafter: DrafterGraph | None, tree: bool = False) -> GraphSpec:
        """The graph's, of a whole iteration or without the drafter's part."""
        step, tells = block + 1, drafter is None and self._drafter.observes
        own = {} if drafter is None else {**_prefixed(drafter.inputs), **_prefixed(drafter.state)}
        inputs = {name: value for name, value in verify.inputs.items() if name not in ("ids", "start")}
        inputs |= {"longest": (I64, ("rows",)), "forbidden": (I64, ("banned",))}
        if drafter is None and block:
            inputs |= {"draft": (I64, ("rows", block)), "count": (I64, ("rows",))}
        if tree:
            inputs["parents"] = (I64, ("rows", block))
        if drafter is not None and drafter.reads_window and block:
            inputs["window"] = (I64, (1,))
        state = {**verify.state, **ROWS}
        read = set() if drafter is None else {OF_DRAFT + name for name in drafter.inputs}
        if block:  # without a draft nobody reads what a drafter remembers
            inputs |= {name: value for name, value in own.items() if name in read}
            state |= {name: value for name, value in own.items() if name not in read}
        kept = [name for name in own if name in inputs or name in state]

        def batch_of(given: Mapping[str, Any]) -> Batch:
            rows = Rows(*(given[name] for name in ROWS))
            proposal = None
            if "draft" in inputs:
                proposal = Proposal(given["draft"], given["count"], given.get("parents"))
            if drafter is None and proposal is None:
                proposal = Proposal(rows.tokens[:, :0], torch.zeros_like(rows.length))
            parts = {name.removeprefix(OF_DRAFT): given[name] for name in kept}
            memory = None if drafter is None or not kept else drafter.state_of(parts)
            small = (given["longest"], given["forbidden"], given.get("window", step))
            return Batch(rows, *small, cache_of(given), memory_of(given), memory, proposal)

        def run(batch: Batch) -> tuple[StepResult, Tensor | None]:
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
        if drafter is not None and block:
            outputs["proposed"] = (I64, ("rows", block))
        if tells:
            outputs["hidden"] = verify.outputs["hidden"][0], ("rows", verify.outputs["hidden"][1][2])

        def results(found: tuple[StepResult, Tensor | None]) -> dict[str, Any]:
            result, hidden = found
            every = {**vars(result), "proposed": result.draft, "hidden": hidden}
            return {name: every[name] for name in outputs}

        def result(found: Mapping[str, Tensor], fed: Feeds) -> Any:
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
                *(block, self._acceptance, self._min_length, self._eos),
                *(() if drafter is None else drafter.settings),
            ),
        )


def _start(batch: Batch) -> Tensor:
    """[rows] where each row's step begins: idle rows idle at the front, where there is room."""
    rows = batch.rows
    return torch.where(rows.done, 0, rows.length) if rows.start is None else rows.start


def _run(program: Program, *arguments: Any) -> Any:
    return program.function(*arguments)


def _of_tree(verify: Program, tree: Tree, start: Tensor) -> Callable[..., Any]:
    """The verifier's function for slots that are no chain."""

    def rule(slots: Tensor, seen: Tensor) -> Tensor:
        return tree.visible(start, seen)

    return partial(verify.function, rule=rule, positions=tree.depth + start[:, None])


def _prefixed(values: Specification) -> dict[str, tuple[torch.dtype, Shape]]:
    """A drafter's, by the names that they have in a step's graph; of its dimensions rows alone are the verifier's."""
    return {
        OF_DRAFT + name: (
            dtype,
            tuple(OF_DRAFT + size if isinstance(size, str) and size != "rows" else size for size in shape),
        )
        for name, (dtype, shape) in values.items()
    }
