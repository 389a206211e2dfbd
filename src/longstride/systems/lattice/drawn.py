"""The scorer's model calls once more, drawn for runners that build graphs of their own (longstride.nn.pen).

Twins of what scoring.py computes; tests hold the two together. Streams are explained there. Tables, the length window
and the search are no model calls and stay what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.contract import EOS, PAD, START, Drawing, Feeds
from longstride.nn import cache, drawn
from longstride.nn.drawn import BOOL, F32, I64, LAYERED
from longstride.nn.pen import HIDDEN, Pen, Value
from longstride.search.lengths import Window
from longstride.systems.lattice.candidates import Candidates
from longstride.systems.lattice.model import Scorer
from longstride.systems.lattice.scoring import AT_ONCE, Encoded, Normalise, Scores
from longstride.systems.lattice.window import Lattice, assemble


def encode(model: Scorer) -> Drawing:
    """Twin of :func:`..scoring.encode`; there is always a mask, and keys go on to a border, hidden."""
    o = model.options

    def draw(pen: Pen, given: Mapping[str, Value]) -> dict[str, Value]:
        ids = given["ids"]
        visible = drawn.real(pen, given["lengths"], ids)
        states = drawn.encoder(pen, model.encoder, drawn.embed_source(pen, model, ids), visible)
        missing = drawn.missing_slots(pen, pen.size(ids, 1))
        keys, values = drawn.project_memory(pen, model.decoder_layers(), states)
        return {
            "keys": pen.lengthen(keys, missing, 3),
            "values": pen.lengthen(values, missing, 3),
            "visible": pen.lengthen(visible, missing, 1),
        }

    def feeds(ids: Tensor, lengths: Tensor, padded: bool) -> Feeds:
        return Feeds({"ids": ids, "lengths": lengths}, sizes={"seen": cache.aligned(ids.shape[1])})

    shape = (o.decoder_layers, "rows", o.heads, "seen", o.head_width)
    return Drawing(
        modules=(model,),
        feeds=feeds,
        inputs={"ids": (I64, ("rows", "source")), "lengths": (I64, ("rows",))},
        state={},
        outputs={"keys": (F32, shape), "values": (F32, shape), "visible": (BOOL, ("rows", "seen"))},
        draw=draw,
        result=lambda found, feeds: Encoded(found["keys"], found["values"], found["visible"]),
    )


def unigrams(model: Scorer) -> Drawing:
    """Twin of :func:`..scoring.unigrams`."""
    o = model.options

    def draw(pen: Pen, given: Mapping[str, Value]) -> dict[str, Value]:
        streams = _Streams(pen, pen.size(given["visible"], 0), given["columns"])
        return {"logits": pen.linear(_hidden(pen, model, given, streams), model.output_weight)}

    def feeds(encoded: Encoded, columns: int) -> Feeds:
        return Feeds({**_memory(encoded), "columns": torch.tensor([columns])}, sizes={"columns": columns})

    return Drawing(
        modules=(model,),
        feeds=feeds,
        inputs={**drawn.memory_inputs(o.decoder_layers, o.heads, o.head_width), "columns": (I64, (1,))},
        state={},
        outputs={"logits": (F32, ("sources", "columns", o.vocabulary))},
        draw=draw,
        result=lambda found, feeds: found["logits"],
        layered=LAYERED,
    )


def score(model: Scorer, order: int, normalise: Normalise) -> Drawing:
    """Twin of :func:`..scoring.score_edges` or `score_triples`; the lattice is put together after it."""
    o = model.options

    def draw(pen: Pen, given: Mapping[str, Value]) -> dict[str, Value]:
        words = given["words"]
        streams = _Streams(pen, pen.size(words, 0), pen.size(words, 1))
        for _ in range(1, order):
            streams.add(words)
        hidden = _hidden(pen, model, given, streams)
        following = pen.node("Pad", words, pen.integers(0, 1), pen.integer(EOS), pen.integers(2))
        share = _shares if normalise == "vocabulary" else _shares_of_candidates
        scored = share(pen, model, hidden, following, streams)
        first = pen.node("Squeeze", pen.cut(scored[0], pen.integers(0), pen.integers(1), 1), pen.integers(1))
        if order == 2:
            return {"first": first, "edges": scored[1]}
        return {"first": first, "edges": pen.cut(scored[1], pen.integers(0), pen.integers(1), 1), "triples": scored[2]}

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
        return Feeds({"words": words, **_memory(encoded), **unread}, sizes=sizes)

    def result(found: Mapping[str, Tensor], feeds: Feeds) -> Lattice:
        given = feeds.inputs
        columns = given["ids"].shape[1]
        triples = found["triples"][:, : max(0, columns - 2)] if order == 3 else None
        scores = Scores(found["first"], found["edges"][:, : columns - 1], triples)
        candidates = Candidates(given["ids"], given["log_scores"])
        return assemble(candidates, scores, Window(given["shortest"], given["longest"]))

    outputs: dict[str, tuple[torch.dtype, tuple[str | int, ...]]] = {"first": (F32, ("sources", "after"))}
    outputs["edges"] = (F32, ("sources", "second" if order == 2 else 1, "k", "after"))
    if order == 3:
        outputs["triples"] = (F32, ("sources", "third", "k", "k", "after"))
    return Drawing(
        modules=(model,),
        feeds=feeds,
        inputs={
            "words": (I64, ("sources", "columns", "k")),
            **drawn.memory_inputs(o.decoder_layers, o.heads, o.head_width),
        },
        state={},
        outputs=outputs,
        draw=draw,
        result=result,
        layered=LAYERED,
        settings=(order, normalise),
    )


def _memory(encoded: Encoded) -> dict[str, Tensor]:
    visible = encoded.visible
    if visible is None:
        _, rows, _, source, _ = encoded.keys.shape
        visible = torch.ones(rows, source, dtype=torch.bool)
    return {"memory_keys": encoded.keys, "memory_values": encoded.values, "visible": visible}


# --- streams ---------------------------------------------------------------------------------------------------------


class _Streams:
    """What stands in which slot, stream after stream in one row per sentence; begins with START in every column."""

    def __init__(self, pen: Pen, rows: Value, columns: Value) -> None:
        self._pen, self._rows, self._columns = pen, rows, columns
        start = pen.constant(torch.tensor([START]))
        self._ids = [pen.node("Expand", start, pen.node("Concat", rows, columns, axis=0))]
        self._slots = [pen.arange(columns)]
        self.shapes: list[list[Value]] = [[columns]]
        """of each stream, lengths [1]: (columns), (columns - 1, K), (columns - 2, K, K)"""

    def add(self, words: Value) -> None:
        """One more, of each candidate in [rows, columns, K] or, after that, of each pair of neighbours."""
        pen, number = self._pen, len(self.shapes)
        k = pen.size(words, 2)
        left = pen.node("Sub", self._columns, pen.integers(number))
        shape = [left, *([k] * number)]
        # A slot's word is the one in the column before, whatever stood before that one.
        first = pen.integers(number - 1)
        own = pen.cut(words, first, pen.node("Add", first, left), 1)
        if number == 2:
            own = pen.node("Unsqueeze", own, pen.integers(2))
        own = pen.node("Expand", own, pen.node("Concat", self._rows, *shape, axis=0))
        flat = pen.node("Concat", self._rows, pen.integers(-1), axis=0)
        self._ids.append(pen.node("Reshape", own, flat))
        slot = pen.cut(self._slots[0], pen.integers(number), self._columns, 0)
        each = self._product([k] * number)
        wide = pen.node("Expand", pen.column(slot), pen.node("Concat", left, each, axis=0))
        self._slots.append(pen.node("Reshape", wide, pen.integers(-1)))
        self.shapes.append(shape)

    @property
    def ids(self) -> Value:
        """[rows, slots of all streams]"""
        return self._joined(self._ids, 1)

    @property
    def slots(self) -> Value:
        """[slots of all streams] the position of each, which is the column it predicts"""
        return self._joined(self._slots, 0)

    def split(self, flat: Value, rest: Value) -> list[Value]:
        """[rows, slots of all streams, n] -> of each stream [rows, *shape, *rest]"""
        pen = self._pen
        parts = [flat]
        if len(self.shapes) > 1:
            sizes = pen.node("Concat", *(self._product(shape) for shape in self.shapes), axis=0)
            parts = list(pen.node("Split", flat, sizes, outputs=len(self.shapes), axis=1))
        return [
            pen.node("Reshape", part, pen.node("Concat", self._rows, *shape, rest, axis=0))
            for part, shape in zip(parts, self.shapes, strict=True)
        ]

    def join(self, parts: Sequence[Value], width: int) -> Value:
        """Of each stream [rows, *shape, ...] -> [rows, slots of all streams, width]"""
        pen = self._pen
        flat = pen.node("Concat", self._rows, pen.integers(-1, width), axis=0)
        return self._joined([pen.node("Reshape", part, flat) for part in parts], 1)

    def _joined(self, parts: Sequence[Value], axis: int) -> Value:
        return parts[0] if len(parts) == 1 else self._pen.node("Concat", *parts, axis=axis)

    def _product(self, sizes: Sequence[Value]) -> Value:
        found = sizes[0]
        for size in sizes[1:]:
            found = self._pen.node("Mul", found, size)
        return found


def _hidden(pen: Pen, model: Scorer, given: Mapping[str, Value], streams: _Streams) -> Value:
    """All slots through the head: [rows, slots of all streams, width]"""
    o = model.options
    tokens = pen.look_up(model.target_embedding.weight * model.scale, streams.ids)
    slots = pen.node("Min", streams.slots, pen.integer(o.longest - 1))
    x = pen.node("Add", tokens, pen.look_up(drawn.position_table(model.target_positions), slots))
    read = drawn.reader(pen, given, o.heads, pen.size(x, 1))

    def see(number: int, qkv: Value) -> Value:
        return _attended(pen, streams, qkv, o.heads, o.head_width)

    for number, layer in enumerate(model.decoder_layers()):
        x = drawn.decoder_layer(pen, layer, number, x, see, read)
    return drawn.close(pen, model.decoder, x)


def _attended(pen: Pen, streams: _Streams, qkv: Value, heads: int, head: int) -> Value:
    """What each slot sees of its own segment, [rows, slots of all streams, width]"""
    queries, keys, values = (streams.split(part, pen.integers(heads, head)) for part in pen.split(qkv, 3))
    found = [values[0]]  # START sees itself alone
    if len(queries) > 1:
        columns = streams.shapes[1][0]
        begins = [_before(pen, part[0], columns, 1) for part in (keys, values)]
        apart = pen.node("Sub", keys[1], begins[0])
        weight = pen.node("Sigmoid", _scores(pen, queries[1], apart, head))
        more = pen.node("Mul", weight, pen.node("Sub", values[1], begins[1]))
        found.append(pen.node("Add", begins[1], more))
    if len(queries) > 2:
        columns = streams.shapes[2][0]
        # The word in slot t sees the word in slot t - 1, which is a single stream's, and START in slot t - 2.
        seen = [
            (_before(pen, part[0], columns, 2), _before(pen, part[1], columns, 1), part[2]) for part in (keys, values)
        ]
        scores = pen.node("Concat", *(_scores(pen, queries[2], key, head) for key in seen[0]), axis=-1)
        weights = pen.split(pen.node("Softmax", scores, axis=-1), 3)
        parts = [pen.node("Mul", weight, value) for weight, value in zip(weights, seen[1], strict=True)]
        found.append(pen.node("Add", pen.node("Add", parts[0], parts[1]), parts[2]))
    return streams.join(found, heads * head)


def _before(pen: Pen, x: Value, columns: Value, choices: int) -> Value:
    """[rows, columns or more, ..., heads, head] -> the first columns, to be set beside `choices` words after them"""
    return pen.node("Unsqueeze", pen.cut(x, pen.integers(0), columns, 1), pen.integers(*range(-2 - choices, -2)))


def _scores(pen: Pen, queries: Value, keys: Value, head: int) -> Value:
    """[..., heads, 1]"""
    products = pen.node("ReduceSum", pen.node("Mul", queries, keys), pen.integers(-1), keepdims=1)
    return pen.node("Mul", products, pen.constant(torch.tensor(head**-0.5)))


# --- from hidden states to scores ------------------------------------------------------------------------------------


def _shares(pen: Pen, model: Scorer, hidden: Value, following: Value, streams: _Streams) -> list[Value]:
    """Of each stream [rows, *shape, K + 1]: shares of the whole vocabulary; logits exist a portion at a time."""
    o = model.options
    after = pen.size(following, 2)
    ids = pen.node("Gather", following, streams.slots, axis=1)  # [rows, slots of all streams, K + 1]
    states = pen.node("Reshape", hidden, pen.integers(-1, o.width))
    wanted = pen.node("Reshape", ids, pen.node("Concat", pen.integers(-1), after, axis=0))

    def body(states: Value, wanted: Value) -> list[Value]:
        shares = pen.node("LogSoftmax", pen.linear(states, model.output_weight), axis=-1)
        return [pen.node("GatherElements", shares, wanted, axis=-1)]

    (found,) = pen.in_portions([states, wanted], max(2, AT_ONCE["cpu"] // o.vocabulary), body, (F32,))
    return streams.split(pen.node("Reshape", found, pen.node("Shape", ids)), after)


def _shares_of_candidates(pen: Pen, model: Scorer, hidden: Value, following: Value, streams: _Streams) -> list[Value]:
    """The same, shares of the words of a column alone. So few products are not worth being made in integers."""
    width = model.options.width
    columns, after = pen.size(following, 1), pen.size(following, 2)
    weights = pen.node("Transpose", pen.look_up(model.output_weight, following), perm=[0, 1, 3, 2])
    missing = pen.node("Equal", following, pen.integer(PAD))
    bias = pen.node("Where", missing, pen.constant(torch.tensor(HIDDEN)), pen.constant(torch.zeros(())))
    bias = pen.node("Unsqueeze", bias, pen.integers(2))
    found = []
    for number, part in enumerate(streams.split(hidden, pen.integers(width))):
        here = pen.integers(number)
        states = pen.node("Reshape", part, pen.integers(0, 0, -1, width))
        logits = pen.node("MatMul", states, pen.cut(weights, here, columns, 1))
        shares = pen.node("LogSoftmax", pen.node("Add", logits, pen.cut(bias, here, columns, 1)), axis=-1)
        shape = pen.node("Concat", pen.node("Shape", part, end=-1), after, axis=0)
        found.append(pen.node("Reshape", shares, shape))
    return found
