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
from longstride.ops.recording import Specification, recorded
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
        lambda given: ops.length(given["columns"]),
        lambda found: {"logits": found},
        lambda found, feeds: found["logits"],
    )
    return Program("unigrams", function, spec)


def score(model: Scorer, order: int, normalise: Normalise) -> Program:
    """(encoded, words [rows, columns, K]) -> Scores"""

    def feeds(encoded: Encoded, words: Tensor) -> Feeds:
        _, columns, k = words.shape
        # Every stream has a column at least; what a lattice too short for that has in it is cut off again.
        padded = F.pad(words, (0, 0, 0, max(0, order - columns)), value=model.special.pad)
        sizes = {"after": k + 1, "second": padded.shape[1] - 1, "third": padded.shape[1] - 2, "asked": columns}
        return Feeds({"words": padded, **_feeds(encoded)}, sizes=sizes)

    def result(found: Mapping[str, Tensor], feeds: Feeds) -> Scores:
        columns = feeds.sizes["asked"]
        triples = found["triples"][:, : max(0, columns - 2)] if order == 3 else None
        return Scores(found["first"], found["edges"][:, : columns - 1], triples)

    outputs: dict[str, Any] = {"first": (F32, ("sources", "after"))}
    outputs["edges"] = (F32, ("sources", "second" if order == 2 else 1, "k", "after"))
    if order == 3:
        outputs["triples"] = (F32, ("sources", "third", "k", "k", "after"))
    function = partial(scoring.score_edges if order == 2 else scoring.score_triples, model, normalise=normalise)
    spec = _head_spec(
        model,
        function,
        {"words": (I64, ("sources", "columns", "k"))},
        outputs,
        feeds,
        lambda given: given["words"],
        lambda found: {name: value for name, value in vars(found).items() if value is not None},
        result,
        settings=(order, normalise),
    )
    return Program("score", function, spec)


def _head_spec(
    model: Scorer,
    function: Callable[..., Any],
    inputs: Specification,
    outputs: Specification,
    feeds: Callable[..., Feeds],
    argument: Callable[[Mapping[str, Any]], Any],
    results: Callable[[Any], Mapping[str, Any]],
    result: Callable[[Mapping[str, Tensor], Feeds], Any],
    settings: tuple[Any, ...] = (),
) -> GraphSpec:
    """Of a function of the encoder's output and of one `argument` more, which is made of the inputs."""
    o = model.options
    every = {**inputs, **memory_inputs(o.decoder_layers, o.heads, o.head_width)}

    def arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
        return Encoded(given["memory_keys"], given["memory_values"], given["visible"]), argument(given)

    record = recorded(function, every, {}, arguments, results)
    return GraphSpec((model,), feeds, every, {}, outputs, record, result, LAYERED, settings)


def _feeds(encoded: Encoded) -> dict[str, Tensor]:
    visible = encoded.visible
    if visible is None:
        _, rows, _, source, _ = encoded.keys.shape
        visible = torch.ones(rows, source, dtype=torch.bool)
    return {"memory_keys": encoded.keys, "memory_values": encoded.values, "visible": visible}
