"""The drafter's model calls once more, drawn for runners that build graphs of their own (longstride.nn.pen).

Twins of what model.py and drafter.py compute; tests hold the two together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride.contract import MASK, START, Drawing, Feeds
from longstride.nn import drawn, drawn_link
from longstride.nn.cache import Cache, Memory
from longstride.nn.drawn import F32, I64, LAYERED
from longstride.nn.layers import EncoderLayer
from longstride.nn.pen import Pen, Value
from longstride.nn.transformer import Transformer
from longstride.systems.draft_verify.model import Drafter, reads_whole_encoder


def remember(drafter: Drafter, verifier: Transformer, from_states: bool) -> Drawing:
    """Twin of :meth:`Drafter.remember` and :meth:`Drafter.mask_slots`; reads the verifier's states, or ids alone."""
    o = drafter.options
    own = o.encoder == "own"
    width = verifier.options.width

    def draw(pen: Pen, given: Mapping[str, Value]) -> dict[str, Value]:
        ids = given["ids"]
        visible = drawn.real(pen, given["lengths"], ids)
        places = pen.look_up(drawn.position_table(drafter.source_positions), pen.arange(pen.size(ids, 1)))
        tokens = pen.look_up(drafter.target_embedding.weight * drafter.scale, ids)
        keyed = pen.node("Add", tokens, places)
        if own:
            x = keyed
        else:
            x = given["states"] if from_states else _verifier_states(pen, verifier, drafter, ids, visible)
            x = x if drafter.bridge is None else drawn.linear(pen, drafter.bridge, x)
        if drafter.encoder is not None:
            x = drawn.encoder(pen, drafter.encoder, x, visible)
        keys, values = drawn.project_memory(pen, drafter.decoder_layers(), x)
        mask_slots = _mask_slots(pen, drafter, given["columns"], tokens, keyed, visible)
        return {"keys": keys, "values": values, "visible": visible, "mask_slots": mask_slots}

    def feeds(ids: Tensor, lengths: Tensor, states: Tensor | None, columns: int) -> Feeds:
        inputs = {"ids": ids, "lengths": lengths, "columns": _number(columns)}
        if reads_states and states is not None:
            inputs["states"] = states
        return Feeds(inputs, sizes={"columns": columns})

    def result(found: Mapping[str, Tensor], feeds: Feeds) -> tuple[Memory, Tensor]:
        return Memory(found["keys"], found["values"], found["visible"]), found["mask_slots"]

    reads_states = from_states and not own
    inputs: dict[str, tuple[torch.dtype, tuple[str | int, ...]]] = {
        "ids": (I64, ("rows", "source")),
        "lengths": (I64, ("rows",)),
        "columns": (I64, (1,)),
    }
    if reads_states:
        inputs["states"] = (F32, ("rows", "source", width))
    outputs = drawn.memory_outputs(o.decoder_layers, o.heads, o.width // o.heads, o.width)
    del outputs["states"]
    outputs["mask_slots"] = (F32, ("rows", "columns", o.width))
    return Drawing((drafter, verifier), feeds, inputs, {}, outputs, draw, result, settings=(reads_states,))


def _verifier_states(pen: Pen, verifier: Transformer, drafter: Drafter, ids: Value, visible: Value) -> Value:
    """Twin of :func:`longstride.systems.draft_verify.model.verifier_states`."""
    x = drawn.embed_source(pen, verifier, ids)
    if reads_whole_encoder(drafter.options, verifier):
        return drawn.encoder(pen, verifier.encoder, x, visible)
    mask = drawn.memory_mask(pen, visible, pen.size(x, 1))
    for layer in list(verifier.encoder.layers)[: drafter.options.shared_layers]:
        assert isinstance(layer, EncoderLayer)
        x = drawn.encoder_layer(pen, layer, x, mask)
    return x


def _mask_slots(pen: Pen, drafter: Drafter, columns: Value, tokens: Value, keyed: Value, visible: Value) -> Value:
    """[rows, columns, width] from the source's tokens [rows, source, width], bare and with their positions"""
    embedded = pen.constant(drafter.target_embedding.weight[MASK] * drafter.scale)
    if drafter.copy is None:
        rows = pen.size(tokens, 0)
        return pen.node("Expand", embedded, pen.node("Concat", rows, columns, pen.integers(1), axis=0))
    with torch.no_grad():  # what positions ask for is the same for every sentence
        asked = drafter.copy(drawn.position_table(drafter.target_positions)) / math.sqrt(drafter.options.width)
    asked_here = pen.cut(pen.constant(asked), pen.integers(0), columns, 0)
    scores = pen.node("MatMul", asked_here, pen.node("Transpose", keyed, perm=[0, 2, 1]))
    hidden = pen.node("Unsqueeze", pen.additive(visible), pen.integers(1))
    weights = pen.node("Softmax", pen.node("Add", scores, hidden), axis=-1)
    return pen.node("Add", embedded, pen.node("MatMul", weights, tokens))


# --- a draft ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sight:
    """What a pass through the drafter sees of its cache."""

    mask: Value
    """[rows, step, seen] bool"""
    seen: Value | None = None
    """[1] how many slots of the cache that is; None: all"""
    asked: tuple[Value, Value] | None = None
    """[1] each, first and end of the slots whose states are asked for; the others' keys alone are. None: all are"""


def draft_causal(drafter: Drafter, ids: bool = False) -> Drawing:
    """The newest committed tokens and a block of masks: twin of :func:`..drafter.draft_causal`, or, for ids, of
    :func:`..drafter.follow_causal`.

    The block's own keys and values lie in the slots behind those tokens, where the next ones are written over them,
    instead of behind the canvas: one write, and less to look at. Of the last layer, tokens need no more than keys and
    values.
    """
    trained = drafter.options.block

    def draw(pen: Pen, given: Mapping[str, Value]) -> dict[str, Value]:
        tokens, length, window = given["tokens"], given["length"], given["window"]
        zero = pen.integer(0)
        first = pen.node("Max", pen.node("Sub", length, window), zero)
        newest = pen.node("Add", pen.column(first), pen.arange(window))
        recent = pen.node("GatherElements", tokens, newest, axis=1)
        masked = pen.node("Add", pen.column(length), pen.constant(torch.arange(trained)))
        slots = pen.node("GatherND", given["mask_slots"], pen.column(masked), batch_dims=1)
        embedded = pen.node("Concat", _tokens(pen, drafter, recent), slots, axis=1)

        step = pen.node("Add", window, pen.integers(trained))
        used = drawn.used_slots(pen, first, step)
        seen = pen.arange(used)
        of_prefix = pen.node("LessOrEqual", seen, pen.column(newest))
        behind = pen.column(pen.node("Add", first, window))
        of_masks = pen.node("GreaterOrEqual", seen, behind)
        of_masks = pen.node("And", of_masks, pen.node("Less", seen, pen.node("Add", behind, pen.integer(trained))))
        of_block = pen.node("Or", pen.node("Less", seen, pen.column(length)), of_masks)
        of_block = pen.node("Unsqueeze", of_block, pen.integers(1))
        of_block = pen.node("Expand", of_block, pen.integers(1, trained, 1))
        mask = pen.node("Concat", of_prefix, of_block, axis=1)
        positions = pen.node("Concat", newest, masked, axis=1)
        sight = _Sight(mask, used, (window, step))
        hidden, kept = _run(pen, drafter, given, embedded, positions, sight, first)
        asked = pen.cut(hidden, pen.integers(0), given["block"], 1)
        newest_id = None if drafter.link is None else _newest(pen, tokens, length, zero)
        return {**_drafted(pen, drafter, asked, newest_id, ids), **kept}

    def feeds(
        tokens: Tensor,
        length: Tensor,
        window: int | Tensor,
        block: int,
        mask_slots: Tensor,
        cache: Cache,
        memory: Memory,
    ) -> Feeds:
        wide = _number(window) if isinstance(window, int) else window
        inputs = {"tokens": tokens, "length": length, "window": wide, "block": _number(block)}
        return _feeds(inputs, block, mask_slots, cache, memory)

    inputs = {"tokens": (I64, ("rows", "room")), "window": (I64, (1,))}
    return _drawing(drafter, feeds, inputs, draw, ids)


def draft_full(drafter: Drafter, ids: bool = False) -> Drawing:
    """The whole canvas: twin of :func:`..drafter.draft_full`, or, for ids, of :func:`..drafter.follow_full`."""
    trained = drafter.options.block

    def draw(pen: Pen, given: Mapping[str, Value]) -> dict[str, Value]:
        canvas, length = given["canvas"], given["length"]
        slots = pen.arange(pen.size(canvas, 1))
        committed = pen.column(pen.node("Less", slots, pen.column(length)))
        embedded = pen.node("Where", committed, _tokens(pen, drafter, canvas), given["mask_slots"])
        seen = pen.arange(pen.size(given["keys"][0], 2))
        ends = pen.column(pen.node("Add", length, pen.integer(trained)))
        mask = pen.node("Unsqueeze", pen.node("Less", seen, ends), pen.integers(1))
        mask = pen.node(
            "Expand", mask, pen.node("Concat", pen.integers(1), pen.size(canvas, 1), pen.integers(1), axis=0)
        )
        start = pen.node("Mul", length, pen.integer(0))
        positions = pen.node("Unsqueeze", slots, pen.integers(0))
        hidden, kept = _run(pen, drafter, given, embedded, positions, _Sight(mask), start)
        masked = pen.node("Add", pen.column(length), pen.arange(given["block"]))
        asked = pen.node("GatherND", hidden, pen.column(masked), batch_dims=1)
        newest = None if drafter.link is None else _newest(pen, canvas, length, pen.integer(0))
        return {**_drafted(pen, drafter, asked, newest, ids), **kept}

    def feeds(
        tokens: Tensor, length: Tensor, window: int, block: int, mask_slots: Tensor, cache: Cache, memory: Memory
    ) -> Feeds:
        canvas = F.pad(tokens, (0, mask_slots.shape[1] - tokens.shape[1]))
        inputs = {"canvas": canvas, "length": length, "block": _number(block)}
        return _feeds(inputs, block, mask_slots, cache, memory)

    return _drawing(drafter, feeds, {"canvas": (I64, ("rows", "columns"))}, draw, ids)


def chosen(draft: Drawing) -> Drawing:
    """A draft's ids instead of its logits: twin of :func:`..drafter.chosen`."""
    _, (*_, vocabulary) = draft.outputs["logits"]
    assert isinstance(vocabulary, int)

    def draw(pen: Pen, given: Mapping[str, Value]) -> dict[str, Value]:
        found = dict(draft.draw(pen, given))
        positions = pen.node("Add", pen.column(given["length"]), pen.arange(given["block"]))
        limits = (given["longest"], given["forbidden"])
        return {"ids": drawn.choices(pen, found.pop("logits"), positions, *limits, vocabulary), **found}

    def feeds(longest: Tensor, forbidden: Tensor, *arguments: Any) -> Feeds:
        of_draft = draft.feeds(*arguments)
        inputs = {**of_draft.inputs, "longest": longest, "forbidden": forbidden}
        return Feeds(inputs, of_draft.state, of_draft.sizes)

    return replace(
        draft,
        feeds=feeds,
        inputs={**draft.inputs, "longest": (I64, ("rows",)), "forbidden": (I64, ("banned",))},
        outputs={"ids": (I64, ("rows", "block"))},
        draw=draw,
        result=lambda found, feeds: found["ids"],
    )


def _feeds(inputs: dict[str, Tensor], block: int, mask_slots: Tensor, cache: Cache, memory: Memory) -> Feeds:
    inputs |= {
        "mask_slots": mask_slots,
        "memory_keys": memory.keys,
        "memory_values": memory.values,
        "visible": memory.visible,
    }
    return Feeds(inputs, {"keys": cache.keys, "values": cache.values}, {"block": block})


def _drawing(
    drafter: Drafter,
    feeds: Callable[..., Feeds],
    inputs: Mapping[str, tuple[torch.dtype, tuple[str | int, ...]]],
    draw: Callable[[Pen, Mapping[str, Value]], Mapping[str, Value]],
    ids: bool,
) -> Drawing:
    o = drafter.options
    found = "ids" if ids else "logits"
    outputs = {"ids": (I64, ("rows", "block")), "logits": (F32, ("rows", "block", o.vocabulary))}
    shape = (o.decoder_layers, o.heads, o.width // o.heads)
    return Drawing(
        modules=(drafter,),
        feeds=feeds,
        inputs={
            **inputs,
            "length": (I64, ("rows",)),
            "block": (I64, (1,)),
            "mask_slots": (F32, ("rows", "columns", o.width)),
            **drawn.memory_inputs(*shape),
        },
        state=drawn.cache_state(*shape),
        outputs={found: outputs[found]},
        draw=draw,
        result=lambda values, feeds: values[found],
        layered=LAYERED,
        settings=(o.prefix,),
    )


@cache
def _number(number: int) -> Tensor:
    """[1] the same tensor each time: what is bound stays bound"""
    return torch.tensor([number])


def _newest(pen: Pen, tokens: Value, length: Value, zero: Value) -> Value:
    """Twin of :func:`..model.newest_of`: [rows] the last of each row's tokens, or START"""
    last = pen.node("Max", pen.node("Sub", length, pen.integer(1)), zero)
    found = pen.node("Squeeze", pen.node("GatherElements", tokens, pen.column(last), axis=1), pen.integers(1))
    return pen.node("Where", pen.node("Greater", length, zero), found, pen.integer(START))


def _drafted(pen: Pen, drafter: Drafter, hidden: Value, newest: Value | None, ids: bool) -> dict[str, Value]:
    """Twin of :meth:`Drafter.drafted`, or, for ids, of :meth:`Drafter.followed`: hidden [rows, block, width] -> logits
    [rows, block, vocabulary] or ids [rows, block]"""
    logits = pen.linear(hidden, drafter.output_weight)
    if drafter.link is None:
        return {"logits": logits}
    given = (pen, drafter.link, logits, hidden, newest, drafter.options.block)
    return {"ids": drawn_link.drafted(*given)} if ids else {"logits": drawn_link.chained(*given)}


def _tokens(pen: Pen, drafter: Drafter, ids: Value) -> Value:
    return pen.look_up(drafter.target_embedding.weight * drafter.scale, ids)


def _run(
    pen: Pen,
    drafter: Drafter,
    given: Mapping[str, Value],
    embedded: Value,
    positions: Value,
    sight: _Sight,
    start: Value,
) -> tuple[Value, dict[str, list[Value]]]:
    """Twin of :meth:`Drafter.run` for slots that lie side by side in the cache from each row's own start [rows] on;
    states of those alone that are asked for"""
    o = drafter.options
    layers = drafter.decoder_layers()
    place = pen.look_up(drawn.position_table(drafter.target_positions), positions)
    x = pen.node("Add", embedded, place)
    mask = pen.additive(pen.node("Unsqueeze", sight.mask, pen.integers(1)))
    kept: dict[str, list[Value]] = {"keys": [], "values": []}

    def only_asked(value: Value, axis: int = 1) -> Value:
        return value if sight.asked is None else pen.cut(value, *sight.asked, axis)

    def see(number: int, qkv: Value) -> Value:
        queries, keys, values = pen.split(qkv, 3)
        for name, new in (("keys", keys), ("values", values)):
            kept[name].append(pen.write(given[name][number], pen.split_heads(new, o.heads), start))
        keys, values = (_first(pen, kept[name][number], sight.seen) for name in ("keys", "values"))
        if number + 1 < len(layers):
            return pen.attend(queries, keys, values, mask, o.heads)
        return pen.attend(only_asked(queries), keys, values, only_asked(mask, 2), o.heads)

    for number, layer in enumerate(layers):
        if number and o.add_positions == "every":
            x = pen.node("Add", x, place)
        last = number + 1 == len(layers)
        read = drawn.reader(pen, given, o.heads, pen.size(only_asked(positions) if last else positions, 1))
        x = drawn.decoder_layer(pen, layer, number, x, see, read, only_asked if last else None)
    norm = drafter.decoder.norm
    return (pen.norm(x, norm) if isinstance(norm, nn.LayerNorm) else x), kept


def _first(pen: Pen, state: Value, slots: Value | None) -> Value:
    """[rows, heads, slots, head] so many of them"""
    return state if slots is None else pen.cut(state, pen.integers(0), slots, 2)
