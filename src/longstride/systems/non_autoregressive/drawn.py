"""One-pass decoding's model calls once more, drawn for runners that build graphs of their own (longstride.nn.pen).

Twins of what model.py and filling.py compute; tests hold the two together. What slots copy from the source is worked
out before, from lengths alone, and which length is best after: both are a few numbers per slot.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from longstride.contract import EOS, MASK, Drawing, Feeds
from longstride.nn import drawn
from longstride.nn.drawn import BOOL, F32, I64
from longstride.nn.pen import Pen, Value
from longstride.systems.non_autoregressive.filling import Best, Encoded, Filled, choose
from longstride.systems.non_autoregressive.model import OnePass, near_words, nearest_words

AT_ONCE = 1 << 22
"""Logits that exist at once: as many as a processor's caches may hold."""


def encode(model: OnePass) -> Drawing:
    """Twin of :func:`..filling.encode`; there is always a mask."""

    def draw(pen: Pen, given: Mapping[str, Value]) -> dict[str, Value]:
        ids = given["ids"]
        visible = drawn.real(pen, given["lengths"], ids)
        return {
            "memory": drawn.encoder(pen, model.encoder, drawn.embed_source(pen, model, ids), visible),
            "visible": visible,
        }

    def feeds(ids: Tensor, lengths: Tensor, padded: bool) -> Feeds:
        return Feeds({"ids": ids, "lengths": lengths})

    def result(found: Mapping[str, Tensor], feeds: Feeds) -> Encoded:
        return Encoded(feeds.inputs["ids"], feeds.inputs["lengths"], found["memory"], found["visible"])

    return Drawing(
        modules=(model,),
        feeds=feeds,
        inputs={"ids": (I64, ("rows", "source")), "lengths": (I64, ("rows",))},
        state={},
        outputs={"memory": (F32, ("rows", "source", model.options.width)), "visible": (BOOL, ("rows", "source"))},
        draw=draw,
        result=result,
    )


def fill(model: OnePass) -> Drawing:
    """Twin of :func:`..filling.fill`: the graph finds the best word of every slot, and a length is chosen after it."""
    o = model.options

    def draw(pen: Pen, given: Mapping[str, Value]) -> dict[str, Value]:
        states = pen.node("Reshape", _hidden(pen, model, given), pen.integers(-1, o.width))
        never = pen.constant(torch.tensor(float("-inf")))
        bias = pen.node("Where", given["banned"], never, pen.constant(torch.zeros(())))

        def best(states: Value) -> tuple[Value, Value, Value]:
            scores = pen.node("LogSoftmax", pen.linear(states, model.output_weight), axis=-1)
            of_eos = pen.node("Gather", scores, pen.integer(EOS), axis=1)
            of_ids, ids = pen.node("TopK", pen.node("Add", scores, bias), pen.integers(1), outputs=2, axis=-1)
            return ids, of_ids, of_eos

        found = pen.in_portions([states], max(2, AT_ONCE // o.vocabulary), best, (I64, F32, F32))
        names = ("words", "of_words", "of_eos")
        return {name: pen.node("Reshape", value, pen.integers(-1)) for name, value in zip(names, found, strict=True)}

    def feeds(banned: Tensor, dedup: int, encoded: Encoded, lengths: Tensor, odds: Tensor, columns: int) -> Feeds:
        visible = encoded.visible
        inputs = {
            "memory": encoded.memory,
            "visible": torch.ones_like(encoded.ids, dtype=torch.bool) if visible is None else visible,
            "lengths": lengths.flatten(),
            "columns": torch.tensor([columns]),
            "banned": banned,
            # What the graph does not read, and the choice between lengths does:
            "tried": lengths,
            "odds": odds,
        }
        canvases = encoded.ids, encoded.lengths, inputs["lengths"], columns
        if o.copy == "uniform":
            inputs["copied"] = nearest_words(*canvases)
        if o.copy == "soft":
            inputs["ids"], inputs["weights"] = encoded.ids, near_words(*canvases, o.copy_spread)
        return Feeds(inputs, sizes={"columns": columns, "slots": lengths.numel() * columns, "dedup": dedup})

    def result(found: Mapping[str, Tensor], feeds: Feeds) -> Filled:
        best = Best(found["words"], found["of_words"].double(), found["of_eos"].double())
        return choose(best, feeds.inputs["tried"], feeds.inputs["odds"], feeds.sizes["columns"], feeds.sizes["dedup"])

    inputs: dict[str, tuple[torch.dtype, tuple[str | int, ...]]] = {
        "memory": (F32, ("sources", "source", o.width)),
        "visible": (BOOL, ("sources", "source")),
        "lengths": (I64, ("canvases",)),
        "columns": (I64, (1,)),
        "banned": (BOOL, (o.vocabulary,)),
    }
    if o.copy == "uniform":
        inputs["copied"] = (I64, ("canvases", "columns"))
    if o.copy == "soft":
        inputs |= {"ids": (I64, ("sources", "source")), "weights": (F32, ("sources", "together", "source"))}
    return Drawing(
        modules=(model,),
        feeds=feeds,
        inputs=inputs,
        state={},
        outputs={"words": (I64, ("slots",)), "of_words": (F32, ("slots",)), "of_eos": (F32, ("slots",))},
        draw=draw,
        result=result,
    )


def _hidden(pen: Pen, model: OnePass, given: Mapping[str, Value]) -> Value:
    """[canvases, columns, width]: twin of :meth:`OnePass.forward`"""
    o = model.options
    lengths, columns = given["lengths"], given["columns"]
    canvases = pen.size(lengths, 0)
    x = _canvas(pen, model, given, canvases)
    missing = drawn.missing_slots(pen, columns)
    every = pen.arange(drawn.aligned(pen, columns))
    seen = pen.node("Less", every, pen.column(pen.node("Max", lengths, pen.integer(1))))
    mask = drawn.memory_mask(pen, seen, columns)
    read = drawn.side_by_side(pen, _memory(pen, model, given), o.heads, o.width, canvases, columns)

    def see(number: int, qkv: Value) -> Value:
        return drawn.see_each_other(pen, qkv, mask, o.heads, missing)

    for number, layer in enumerate(model.decoder_layers()):
        x = drawn.decoder_layer(pen, layer, number, x, see, read)
    return drawn.close(pen, model.decoder, x)


def _memory(pen: Pen, model: OnePass, given: Mapping[str, Value]) -> dict[str, Value]:
    """Keys and values of every layer, up to a border."""
    layers = model.decoder_layers()
    missing = drawn.missing_slots(pen, pen.size(given["visible"], 1))
    every = {"visible": pen.lengthen(given["visible"], missing, 1)}
    for name, value in zip(
        ("memory_keys", "memory_values"), drawn.project_memory(pen, layers, given["memory"]), strict=True
    ):
        apart = pen.node("Split", pen.lengthen(value, missing, 3), outputs=len(layers), axis=0, num_outputs=len(layers))
        parts = [apart] if len(layers) == 1 else list(apart)
        every[name] = [pen.node("Squeeze", part, pen.integers(0)) for part in parts]
    return every


def _canvas(pen: Pen, model: OnePass, given: Mapping[str, Value], canvases: Value) -> Value:
    """[canvases, columns, width] what the slots read"""
    o = model.options
    columns = given["columns"]
    slots = pen.node("Min", pen.arange(columns), pen.integer(o.longest - 1))
    places = pen.look_up(drawn.position_table(model.target_positions), slots)
    empty = pen.node("Add", places, pen.constant(model.target_embedding.weight[MASK] * model.scale))
    shape = pen.node("Concat", canvases, columns, pen.integers(o.width), axis=0)
    if o.copy == "none":
        return pen.node("Expand", empty, shape)
    table = (model.target_embedding if model.source_embedding is None else model.source_embedding).weight
    if o.copy == "uniform":
        return pen.node("Add", empty, pen.look_up(table * model.scale, given["copied"]))
    mixed = pen.node("MatMul", given["weights"], pen.look_up(table * model.scale, given["ids"]))
    return pen.node("Add", empty, pen.node("Reshape", mixed, shape))
