"""The model calls of one-pass decoding, as programs a backend carries out.

What slots copy from the source is worked out before a graph runs, from lengths alone, and which length is best after:
both are a few numbers per slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from longstride import ops
from longstride.contract import Feeds, Program
from longstride.nn.programs import BOOL, F32, I64
from longstride.ops.trace import traced
from longstride.systems.non_autoregressive import filling
from longstride.systems.non_autoregressive.filling import Best, Encoded, choose
from longstride.systems.non_autoregressive.model import OnePass


def encode(model: OnePass) -> Program:
    """(ids [rows, source], lengths [rows], padded) -> Encoded"""

    def feeds(ids: Tensor, lengths: Tensor, padded: bool) -> Feeds:
        return Feeds({"ids": ids, "lengths": lengths})

    def result(found: Mapping[str, Tensor], feeds: Feeds) -> Encoded:
        return Encoded(feeds.inputs["ids"], feeds.inputs["lengths"], found["memory"], found["visible"])

    return traced(
        "encode",
        partial(filling.encode, model),
        (model,),
        {"ids": (I64, ("rows", "source")), "lengths": (I64, ("rows",))},
        {"memory": (F32, ("rows", "source", model.options.width)), "visible": (BOOL, ("rows", "source"))},
        feeds=feeds,
        arguments=lambda given: (given["ids"], given["lengths"], True),
        result=result,
    )


def fill(model: OnePass) -> Program:
    """(banned [vocabulary], dedup, encoded, lengths [rows, n], odds [rows, n], columns) -> outputs"""
    o = model.options

    def feeds(banned: Tensor, dedup: int, encoded: Encoded, lengths: Tensor, odds: Tensor, columns: int) -> Feeds:
        visible = encoded.visible
        given = {
            "memory": encoded.memory,
            "visible": torch.ones_like(encoded.ids, dtype=torch.bool) if visible is None else visible,
            "lengths": lengths.flatten(),
            "columns": torch.tensor([columns]),
            "banned": banned,
            # What the graph does not read, and the choice between lengths does:
            "tried": lengths,
            "odds": odds,
        }
        copied = model.copying(encoded.ids, encoded.lengths, given["lengths"], columns)
        if copied is not None:
            given["copied"] = copied
        if o.copy == "soft":
            given["ids"] = encoded.ids
        return Feeds(given, sizes={"columns": columns, "slots": lengths.numel() * columns, "dedup": dedup})

    def arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
        sources = given["memory"], given["visible"], given.get("ids"), None
        return (given["banned"], *sources, given["lengths"], ops.length(given["columns"]), given.get("copied"))

    def result(found: Mapping[str, Tensor], feeds: Feeds) -> Tensor:
        best = Best(found["words"], found["of_words"], found["of_eos"])
        given, sizes = feeds.inputs, feeds.sizes
        return choose(best, given["tried"], given["odds"], sizes["columns"], sizes["dedup"], model.special.eos)

    inputs: dict[str, Any] = {
        "memory": (F32, ("sources", "source", o.width)),
        "visible": (BOOL, ("sources", "source")),
        "lengths": (I64, ("canvases",)),
        "columns": (I64, (1,)),
        "banned": (BOOL, (o.vocabulary,)),
    }
    if o.copy == "uniform":
        inputs["copied"] = (I64, ("canvases", "columns"))
    if o.copy == "soft":
        inputs |= {"ids": (I64, ("sources", "source")), "copied": (F32, ("sources", "together", "source"))}
    outputs = {"words": (I64, ("slots",)), "of_words": (F32, ("slots",)), "of_eos": (F32, ("slots",))}
    best = partial(filling.best, model)
    program = traced("fill", best, (model,), inputs, outputs, feeds=feeds, arguments=arguments, result=result)
    return replace(program, function=partial(filling.fill, model))
