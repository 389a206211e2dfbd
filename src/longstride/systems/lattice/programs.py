"""The scorer's model calls, as programs a backend carries out.

Tables, the length window and the search are no model calls: a lattice is put together from what these give.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride import ops
from longstride.contract import PAD, Feeds, GraphSpec, Program
from longstride.nn.programs import BOOL, F32, I64, LAYERED, memory_inputs
from longstride.ops.recording import Specification, recorded
from longstride.search.lengths import Window
from longstride.systems.lattice import scoring
from longstride.systems.lattice.candidates import Candidates
from longstride.systems.lattice.model import Scorer
from longstride.systems.lattice.scoring import Encoded, Normalise, Scores
from longstride.systems.lattice.window import Lattice, assemble


def encode(model: Scorer) -> Program:
    """(ids [rows, source], lengths [rows], padded) -> Encoded"""
    o = model.options
    function = partial(scoring.encode, model)
    inputs: Specification = {"ids": (I64, ("rows", "source")), "lengths": (I64, ("rows",))}
    shape = (o.decoder_layers, "rows", o.heads, "seen", o.head_width)

    def feeds(ids: Tensor, lengths: Tensor, padded: bool) -> Feeds:
        return Feeds({"ids": ids, "lengths": lengths}, sizes={"seen": ops.aligned(ids.shape[1])})

    spec = GraphSpec(
        modules=(model,),
        feeds=feeds,
        inputs=inputs,
        state={},
        outputs={"keys": (F32, shape), "values": (F32, shape), "visible": (BOOL, ("rows", "seen"))},
        record=recorded(function, inputs, {}, lambda given: (given["ids"], given["lengths"], True), vars),
        result=lambda found, feeds: Encoded(found["keys"], found["values"], found["visible"]),
    )
    return Program("encode", function, spec)


def unigrams(model: Scorer) -> Program:
    """(encoded, columns) -> logits [rows, columns, vocabulary]"""
    o = model.options
    function = partial(scoring.unigrams, model)
    inputs: Specification = {
        **memory_inputs(o.decoder_layers, o.heads, o.head_width),
        "columns": (I64, (1,)),
    }

    def feeds(encoded: Encoded, columns: int) -> Feeds:
        return Feeds({**_feeds(encoded), "columns": torch.tensor([columns])}, sizes={"columns": columns})

    spec = GraphSpec(
        modules=(model,),
        feeds=feeds,
        inputs=inputs,
        state={},
        outputs={"logits": (F32, ("sources", "columns", o.vocabulary))},
        record=recorded(
            function,
            inputs,
            {},
            lambda given: (_encoded(given), ops.length(given["columns"])),
            lambda found: {"logits": found},
        ),
        result=lambda found, feeds: found["logits"],
        layered=LAYERED,
    )
    return Program("unigrams", function, spec)


def score(model: Scorer, order: int, normalise: Normalise) -> Program:
    """(encoded, candidates, window) -> Lattice"""
    o = model.options
    scores = partial(scoring.score_edges if order == 2 else scoring.score_triples, model, normalise=normalise)

    def function(encoded: Encoded, candidates: Candidates, window: Window) -> Lattice:
        return assemble(candidates, scores(encoded, candidates.ids), window)

    def feeds(encoded: Encoded, candidates: Candidates, window: Window) -> Feeds:
        _, columns, k = candidates.ids.shape
        # Every stream has a column at least; what a lattice too short for that has in it is cut off again.
        words = F.pad(candidates.ids, (0, 0, 0, max(0, order - columns)), value=PAD)
        unread = {
            "ids": candidates.ids,
            "log_scores": candidates.log_scores,
            "shortest": window.shortest,
            "longest": window.longest,
        }
        sizes = {"after": k + 1, "second": words.shape[1] - 1, "third": words.shape[1] - 2}
        return Feeds({"words": words, **_feeds(encoded), **unread}, sizes=sizes)

    def results(found: Scores) -> dict[str, Any]:
        return {name: value for name, value in vars(found).items() if value is not None}

    def result(found: Mapping[str, Tensor], feeds: Feeds) -> Lattice:
        given = feeds.inputs
        columns = given["ids"].shape[1]
        triples = found["triples"][:, : max(0, columns - 2)] if order == 3 else None
        scored = Scores(found["first"], found["edges"][:, : columns - 1], triples)
        candidates = Candidates(given["ids"], given["log_scores"])
        return assemble(candidates, scored, Window(given["shortest"], given["longest"]))

    inputs: Specification = {
        "words": (I64, ("sources", "columns", "k")),
        **memory_inputs(o.decoder_layers, o.heads, o.head_width),
    }
    outputs: dict[str, Any] = {"first": (F32, ("sources", "after"))}
    outputs["edges"] = (F32, ("sources", "second" if order == 2 else 1, "k", "after"))
    if order == 3:
        outputs["triples"] = (F32, ("sources", "third", "k", "k", "after"))
    spec = GraphSpec(
        modules=(model,),
        feeds=feeds,
        inputs=inputs,
        state={},
        outputs=outputs,
        record=recorded(scores, inputs, {}, lambda given: (_encoded(given), given["words"]), results),
        result=result,
        layered=LAYERED,
        settings=(order, normalise),
    )
    return Program("score", function, spec)


def edges(model: Scorer, normalise: Normalise) -> Program:
    """(encoded, words [rows, columns, K]) -> Scores, where no lattice is made of them"""
    return Program("edges", partial(scoring.score_edges, model, normalise=normalise))


def _feeds(encoded: Encoded) -> dict[str, Tensor]:
    visible = encoded.visible
    if visible is None:
        _, rows, _, source, _ = encoded.keys.shape
        visible = torch.ones(rows, source, dtype=torch.bool)
    return {"memory_keys": encoded.keys, "memory_values": encoded.values, "visible": visible}


def _encoded(given: Mapping[str, Any]) -> Encoded:
    return Encoded(given["memory_keys"], given["memory_values"], given["visible"])
