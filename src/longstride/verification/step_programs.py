"""One iteration as programs: what runners that build graphs have to know of a step, whole or in parts.

A drafter that cannot be traced is asked from outside (:func:`verifying`); where no graph can judge, what comes before
is one (:func:`reading`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from longstride.contract import Feeds, GraphSpec, Program
from longstride.contract.running import Shape
from longstride.engine.outputs import Rows
from longstride.nn.programs import cache_of, memory_feeds, memory_of
from longstride.ops.trace import Specification, traced
from longstride.verification.drafting import DrafterGraph, Proposal
from longstride.verification.step import Batch, StepResult, StepSlots, VerifyStep

I64 = torch.int64

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


def whole(step: VerifyStep, block: int) -> Program:
    """(batch) -> StepResult; without a graph where the drafter cannot be traced"""
    run = partial(step.run, block=block)
    drafter, verify = step.drafter.graph, step.verifier.graph
    if drafter is None or verify is None or step.judges_apart:
        return Program("step", run)
    return _traced("step", step, run, verify, block, drafter)


def verifying(step: VerifyStep, block: int, tree: bool) -> Program:
    """(batch with a proposal) -> StepResult, and the hidden state for who observes [rows, width]"""

    def run(batch: Batch) -> tuple[StepResult, Tensor | None]:
        assert batch.proposal is not None
        return step.verify(batch, batch.proposal)

    name, verify = "verify-tree" if tree else "verify-step", step.verifier.graph
    return Program(name, run) if verify is None else _traced(name, step, run, verify, block, None, tree)


def reading(step: VerifyStep, block: int, drafts: bool, tree: bool = False) -> Program:
    """(batch, with a proposal unless it `drafts`) -> the proposal, logits and states, for :meth:`VerifyStep.judge`"""

    def run(batch: Batch) -> tuple[Proposal, Tensor, Tensor]:
        draft = step.propose(batch, block) if drafts else batch.proposal
        assert draft is not None
        return draft, *step.read(batch, StepSlots.of(batch, draft))

    drafter, verify = step.drafter.graph if drafts else None, step.verifier.graph
    name = "read-tree" if tree else "read-draft" if drafts else "read-step"
    if verify is None or (drafts and drafter is None):
        return Program(name, run)
    return _traced(name, step, run, verify, block, drafter, tree, judged=False)


def _traced(
    name: str,
    of: VerifyStep,
    run: Callable[[Batch], Any],
    verify: GraphSpec,
    block: int,
    drafter: DrafterGraph | None,
    tree: bool = False,
    judged: bool = True,
) -> Program:
    """A whole iteration, or one without the drafter's part; or what comes before judging."""
    step, tells = block + 1, judged and drafter is None and of.drafter.observes
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
        if of.drafter.trees:
            outputs["proposed_parents"] = (I64, ("rows", block))
    if tells:
        outputs["hidden"] = verify.outputs["hidden"][0], ("rows", verify.outputs["hidden"][1][2])

    def results(found: Any) -> dict[str, Any]:
        if judged:
            result, hidden = found if drafter is None else (found, None)
            every = {**vars(result), "proposed": result.draft, "proposed_parents": result.parents, "hidden": hidden}
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
        parents = found.get("proposed_parents", fed.inputs.get("parents"))
        done = StepResult(found["active"], found["positions"], found["ids"], found["written"], draft, parents)
        return done if drafter is not None else (done, found.get("hidden"))

    layered = verify.layered | (frozenset() if drafter is None else {OF_DRAFT + name for name in drafter.layered})
    return traced(
        name,
        run,
        (*verify.modules, *(() if drafter is None or not block else drafter.modules)),
        inputs,
        outputs,
        state=state,
        feeds=feeds,
        arguments=lambda given: (batch_of(given),),
        results=results,
        result=result,
        layered=frozenset(name for name in layered if name in inputs or name in state),
        settings=(
            *verify.settings,
            *(block, of.acceptance, of.limits.min_length, of.limits.forced_first, of.limits.forced_last, of.special),
            *(() if drafter is None else drafter.settings),
        ),
    )


def _prefixed(values: Specification) -> dict[str, tuple[torch.dtype, Shape]]:
    """A drafter's, by the names that they have in a step's graph; of its dimensions rows alone are the verifier's."""
    return {
        OF_DRAFT + name: (
            dtype,
            tuple(OF_DRAFT + size if isinstance(size, str) and size != "rows" else size for size in shape),
        )
        for name, (dtype, shape) in values.items()
    }
