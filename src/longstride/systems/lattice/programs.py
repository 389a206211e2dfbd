"""The scorer's model calls, as programs a backend carries out.

Tables, the length window and the search are no model calls: a lattice is put together from what these give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride import ops
from longstride.contract import Feeds, Program
from longstride.nn.programs import BOOL, F32, I64, LAYERED, memory_inputs
from longstride.ops.trace import Specification, traced
from longstride.systems.lattice import scoring
from longstride.systems.lattice.model import Scorer
from longstride.systems.lattice.scoring import Encoded, Normalise, Scores


def encode(model: Scorer) -> Program:
    """(ids [rows, source], lengths [rows], padded) -> Encoded"""
    o = model.options
    shape = (o.decoder_layers, "rows", o.heads, "seen", o.head_width)
    return traced(
        "encode",
        partial(scoring.encode, model),
        (model,),
        {"ids": (I64, ("rows", "source")), "lengths": (I64, ("rows",))},
        {"keys": (F32, shape), "values": (F32, shape), "visible": (BOOL, ("rows", "seen"))},
        feeds=lambda ids, lengths, padded: Feeds(
            {"ids": ids, "lengths": lengths}, sizes={"seen": ops.aligned(ids.shape[1])}
        ),
        arguments=lambda given: (given["ids"], given["lengths"], True),
        result=lambda found, feeds: Encoded(found["keys"], found["values"], found["visible"]),
    )


def unigrams(model: Scorer) -> Program:
    """(encoded, columns) -> logits [rows, columns, vocabulary]"""

    def feeds(encoded: Encoded, columns: int) -> Feeds:
        return Feeds({**_feeds(encoded), "columns": torch.tensor([columns])}, sizes={"columns": columns})

    return _head(
        "unigrams",
        model,
        partial(scoring.unigrams, model),
        {"columns": (I64, (1,))},
        {"logits": (F32, ("sources", "columns", model.options.vocabulary))},
        feeds,
        lambda given: (ops.length(given["columns"]),),
    )


def unigrams_of(model: Scorer) -> Program:
    """(encoded, words [rows, columns, K]) -> logits [rows, columns, K]"""
    return _head(
        "unigrams_of",
        model,
        partial(scoring.unigrams_of, model),
        {"words": (I64, ("sources", "columns", "k"))},
        {"logits": (F32, ("sources", "columns", "k"))},
        lambda encoded, words: Feeds({"words": words, **_feeds(encoded)}),
        lambda given: (given["words"],),
    )


def score(model: Scorer, order: int, normalise: Normalise, rest: bool = False) -> Program:
    """(encoded, words [rows, columns, K], where there is a rest, that [rows, columns, more]) -> Scores"""

    def feeds(encoded: Encoded, *words: Tensor) -> Feeds:
        _, columns, k = words[0].shape
        # Every stream has a column at least; what a lattice too short for that has in it is cut off again.
        missing = (0, 0, 0, max(0, order - columns))
        padded = {name: F.pad(ids, missing, value=model.special.pad) for name, ids in zip(inputs, words, strict=True)}
        there = padded["words"].shape[1]
        sizes = {"after": k + 1, "second": there - 1, "third": there - 2, "asked": columns}
        return Feeds({**padded, **_feeds(encoded)}, sizes=sizes)

    def result(found: Mapping[str, Tensor], feeds: Feeds) -> Scores:
        columns = feeds.sizes["asked"]
        triples = found["triples"][:, : max(0, columns - 2)] if order == 3 else None
        return Scores(found["first"], found["edges"][:, : columns - 1], triples)

    inputs: Specification = {"words": (I64, ("sources", "columns", "k"))}
    if rest:
        inputs = {**inputs, "rest": (I64, ("sources", "columns", "more"))}
    outputs: dict[str, Any] = {"first": (F32, ("sources", "after"))}
    outputs["edges"] = (F32, ("sources", "second" if order == 2 else 1, "k", "after"))
    if order == 3:
        outputs["triples"] = (F32, ("sources", "third", "k", "k", "after"))
    scored = scoring.score_edges if order == 2 else scoring.score_triples

    def function(encoded: Encoded, words: Tensor, rest: Tensor | None = None) -> Scores:
        return scored(model, encoded, words, normalise, rest)

    return _head(
        "score",
        model,
        function,
        inputs,
        outputs,
        feeds,
        lambda given: tuple(given[name] for name in inputs),
        result=result,
        settings=(order, normalise, rest),
    )


def _head(
    name: str,
    model: Scorer,
    function: Callable[..., Any],
    inputs: Specification,
    outputs: Specification,
    feeds: Callable[..., Feeds],
    arguments: Callable[[Mapping[str, Any]], tuple[Any, ...]],
    **more: Any,
) -> Program:
    """A function of the encoder's output and of further `arguments`, which are made of the inputs."""
    o = model.options
    every = {**inputs, **memory_inputs(o.decoder_layers, o.heads, o.head_width)}

    def read(given: Mapping[str, Any]) -> tuple[Any, ...]:
        return Encoded(given["memory_keys"], given["memory_values"], given["visible"]), *arguments(given)

    return traced(name, function, (model,), every, outputs, feeds=feeds, arguments=read, layered=LAYERED, **more)


def _feeds(encoded: Encoded) -> dict[str, Tensor]:
    visible = encoded.visible
    if visible is None:
        _, rows, _, source, _ = encoded.keys.shape
        visible = torch.ones(rows, source, dtype=torch.bool)
    return {"memory_keys": encoded.keys, "memory_values": encoded.values, "visible": visible}
