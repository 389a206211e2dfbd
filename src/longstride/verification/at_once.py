"""Draft, verify and judge in one program: what a drafter's program and the verifier's do one after the other.

One call then is a whole iteration. The drafter's inputs and states go by names of their own, so that each of the two
graphs finds what it would find by itself; between them lies nothing but the newest token put before the draft.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from longstride.contract import Feeds, GraphSpec, Program
from longstride.contract.running import Shape
from longstride.ops.graph_builder import GraphBuilder
from longstride.ops.graph_builder import Handle as Value
from longstride.verification.judged import Judged

OF_DRAFT = "draft_"
"""What the drafter's names begin with."""

Values = Mapping[str, tuple[torch.dtype, Shape]]


@dataclass(frozen=True)
class Attempt:
    """What comes of one iteration."""

    draft: Tensor
    """[rows, block]"""
    judged: Judged


def at_once(draft: Program, judge: Program) -> Program:
    """(newest ids [rows, 1], what `draft` takes, what `judge` takes after its ids) -> Attempt

    `draft` gives ids [rows, block]; `judge` is :func:`longstride.verification.judged.judged`. What they take comes as a
    tuple each.
    """

    def function(newest: Tensor, for_draft: tuple[Any, ...], for_judge: tuple[Any, ...]) -> Attempt:
        ids = draft.function(*for_draft)
        return Attempt(ids, judge.function(torch.cat([newest, ids], dim=1), *for_judge))

    spec = None
    if draft.graph is not None and judge.graph is not None:
        spec = _spec(draft.graph, judge.graph)
    return Program("draft-and-judge", function, spec)


def _spec(draft: GraphSpec, judge: GraphSpec) -> GraphSpec:
    inputs = {name: value for name, value in judge.inputs.items() if name != "ids"}

    def record(builder: GraphBuilder, given: Mapping[str, Any]) -> dict[str, Value]:
        own = {name.removeprefix(OF_DRAFT): given[name] for name in given if name.startswith(OF_DRAFT)}
        of_draft = dict(draft.record(builder, own))
        ids = of_draft.pop("ids")
        others = {name: given[name] for name in given if not name.startswith(OF_DRAFT)}
        whole = builder.node("Concat", others.pop("newest"), ids, axis=1)
        of_judge = judge.record(builder, {**others, "ids": whole})
        return {OF_DRAFT + "ids": ids, **_named(of_draft), **of_judge}

    def feeds(newest: Tensor, for_draft: tuple[Any, ...], for_judge: tuple[Any, ...]) -> Feeds:
        of_draft = draft.feeds(*for_draft)
        step = 1 + of_draft.sizes["block"]
        of_judge = judge.feeds(newest.expand(-1, step), *for_judge)
        rest = {name: of_judge.inputs[name] for name in inputs}
        return Feeds(
            {"newest": newest, **_named(of_draft.inputs), **rest},
            {**_named(of_draft.state), **of_judge.state},
            {"step": step, **_named(of_draft.sizes), **of_judge.sizes},
        )

    def result(found: Mapping[str, Tensor], feeds: Feeds) -> Attempt:
        return Attempt(found[OF_DRAFT + "ids"], judge.result(found, feeds))

    return GraphSpec(
        modules=(*draft.modules, *judge.modules),
        feeds=feeds,
        inputs={"newest": (torch.int64, ("rows", 1)), **_renamed(draft.inputs), **inputs},
        state={**_renamed(draft.state), **judge.state},
        outputs={**_renamed(draft.outputs), **judge.outputs},
        record=record,
        result=result,
        layered=frozenset(_named(dict.fromkeys(draft.layered))) | judge.layered,
        settings=(draft.settings, judge.settings),
    )


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    """The drafter's, by the names that they have here."""
    return {OF_DRAFT + name: value for name, value in values.items()}


def _renamed(values: Values) -> dict[str, tuple[torch.dtype, Shape]]:
    """The same with its dimensions, of which rows alone are the verifier's too."""
    return {
        OF_DRAFT + name: (
            dtype,
            tuple(OF_DRAFT + size if isinstance(size, str) and size != "rows" else size for size in shape),
        )
        for name, (dtype, shape) in values.items()
    }
