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
from longstride.contract import Feeds, GraphSpec, Program
from longstride.nn.programs import BOOL, F32, I64, LAYERED, memory_inputs
from longstride.ops.trace import Specification, recorded
from longstride.systems.lattice import scoring
from longstride.systems.lattice.model import Scorer
from longstride.systems.lattice.scoring import Encoded, Normalise, Scores


def encode(model: Scorer) -> Program:
    """(ids [rows, source], lengths [rows], padded) -> Encoded"""
    o = model.options
    inputs: Specification = {"ids": (I64, ("rows", "source")), "lengths": (I64, ("rows",))}
    shape = (o.decoder_layers, "rows", o.heads, "seen", o.head_width)
    function = partial(scoring.encode, model)
    spec = GraphSpec(
        modules=(model,),
        feeds=lambda ids, lengths, padded: Feeds(
            {"ids": ids, "lengths": lengths}, sizes={"seen": ops.aligned(ids.shape[1])}
        ),
        inputs=inputs,
        state={},
        outputs={"keys": (F32, shape), "values": (F32, shape), "visible": (BOOL, ("rows", "seen"))},
        record=recorded(function, inputs, {}, lambda given: (given["ids"], given["lengths"], True), vars),
        result=lambda found, feeds: Encoded(found["keys"], found["values"], found["visible"]),
    )
    return Program("encode", function, spec)


def unigrams(model: Scorer) -> Program:
    """(encoded, columns) -> logits [rows, columns, vocabulary]"""

    def feeds(encoded: Encoded, columns: int) -> Feeds:
        return Feeds({**_feeds(encoded), "columns": torch.tensor([columns])}, sizes={"columns": columns})

    function = partial(scoring.unigrams, model)
    spec = _head_spec(
        model,
        function,
        {"columns": (I64, (1,))},
        {"logits": (F32, ("sources", "columns", model.options.vocabulary))},
        feeds,
        lambda given: (ops.length(given["columns"]),),
        lambda found: {"logits": found},
        lambda found, feeds: found["logits"],
    )
    return Program("unigrams", function, spec)


def unigrams_of(model: Scorer) -> Program:
    """(encoded, words [rows, columns, K]) -> logits [rows, columns, K]"""
    function = partial(scoring.unigrams_of, model)
    spec = _head_spec(
        model,
        function,
        {"words": (I64, ("sources", "columns", "k"))},
        {"logits": (F32, ("sources", "columns", "k"))},
        lambda encoded, words: Feeds({"words": words, **_feeds(encoded)}),
        lambda given: (given["words"],),
        lambda found: {"logits": found},
        lambda found, feeds: found["logits"],
    )
    return Program("unigrams_of", function, spec)


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

    spec = _head_spec(
        model,
        function,
        inputs,
        outputs,
        feeds,
        lambda given: tuple(given[name] for name in inputs),
        lambda found: {name: value for name, value in vars(found).items() if value is not None},
        result,
        settings=(order, normalise, rest),
    )
    return Program("score", function, spec)


def _head_spec(
    model: Scorer,
    function: Callable[..., Any],
    inputs: Specification,
    outputs: Specification,
    feeds: Callable[..., Feeds],
    arguments: Callable[[Mapping[str, Any]], tuple[Any, ...]],
    results: Callable[[Any], Mapping[str, Any]],
    result: Callable[[Mapping[str, Tensor], Feeds], Any],
    settings: tuple[Any, ...] = (),
) -> GraphSpec:
    """Of a function of the encoder's output and of further `arguments`, which are made of the inputs."""
    o = model.options
    every = {**inputs, **memory_inputs(o.decoder_layers, o.heads, o.head_width)}

    def read(given: Mapping[str, Any]) -> tuple[Any, ...]:
        return Encoded(given["memory_keys"], given["memory_values"], given["visible"]), *arguments(given)

    record = recorded(function, every, {}, read, results)
    return GraphSpec((model,), feeds, every, {}, outputs, record, result, LAYERED, settings)


def _feeds(encoded: Encoded) -> dict[str, Tensor]:
    visible = encoded.visible
    if visible is None:
        _, rows, _, source, _ = encoded.keys.shape
        visible = torch.ones(rows, source, dtype=torch.bool)
    return {"memory_keys": encoded.keys, "memory_values": encoded.values, "visible": visible}
