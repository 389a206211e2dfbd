"""The shared Transformer once more, drawn for runners that build graphs of their own (see longstride.nn.pen).

Every function here is the twin of one in layers.py or transformer.py and has to be changed with it; tests hold the two
together. Dropout is left out: graphs only infer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from longstride.contract import EOS, Drawing, Feeds
from longstride.nn.cache import ALIGNMENT, Cache, Memory
from longstride.nn.layers import DecoderLayer, EncoderLayer, FeedForward, Residual
from longstride.nn.pen import Pen, Value
from longstride.nn.positions import SinusoidalPositions
from longstride.nn.transformer import Stack, Transformer

F32, I64, BOOL = torch.float32, torch.int64, torch.bool

See = Callable[[int, Value], Value]
"""(layer, queries, keys and values side by side [rows, step, 3 width]) -> what self-attention mixed"""

Read = Callable[[int, Value], Value]
"""(layer, queries [rows, step, width]) -> what cross-attention mixed [rows, step, width]"""

Keep = Callable[[Value], Value]
"""[rows, step, width] -> [rows, kept, width] some of the slots; `see` then gives what these have mixed"""

Choose = Callable[[Pen, Value], Value]
"""A change of hidden states before they are projected."""


# --- layers ----------------------------------------------------------------------------------------------------------


def linear(pen: Pen, module: nn.Linear, x: Value) -> Value:
    """[..., inputs] -> [..., outputs]"""
    return pen.linear(x, module.weight, module.bias)


def feed_forward(pen: Pen, module: FeedForward, residual: Residual, x: Value) -> Value:
    """[..., width] -> [..., width], the residual sum included"""
    units = pen.activation(linear(pen, module.up, _enter(pen, residual, x)), module.activation)
    return _leave(pen, residual, x, units, module.down)


def _enter(pen: Pen, residual: Residual, x: Value) -> Value:
    return pen.norm(x, residual.norm) if residual.pre else x


def _leave(pen: Pen, residual: Residual, x: Value, block: Value, last: nn.Linear) -> Value:
    """The sum of x and what the block's last layer makes of `block`, normalised where that comes after it."""
    added = linear(pen, last, block)
    return pen.node("Add", x, added) if residual.pre else pen.norm(x, residual.norm, added)


def encoder_layer(pen: Pen, layer: EncoderLayer, x: Value, mask: Value, missing: Value | None = None) -> Value:
    """x [rows, length, width]; mask [rows, 1, length, length], or longer at its end by so many as are `missing`"""
    attention = layer.attention
    qkv = linear(pen, attention.qkv, _enter(pen, layer.attention_residual, x))
    mixed = see_each_other(pen, qkv, mask, attention.heads, missing)
    x = _leave(pen, layer.attention_residual, x, mixed, attention.out)
    return feed_forward(pen, layer.feed_forward, layer.feed_forward_residual, x)


def encoder(pen: Pen, stack: Stack, x: Value, visible: Value) -> Value:
    """x [rows, source, width], visible [rows, source] -> [rows, source, width]"""
    length = pen.size(x, 1)
    missing = missing_slots(pen, length)
    mask = memory_mask(pen, pen.lengthen(visible, missing, 1), length)
    for layer in stack.layers:
        assert isinstance(layer, EncoderLayer)
        x = encoder_layer(pen, layer, x, mask, missing)
    return close(pen, stack, x)


def close(pen: Pen, stack: Stack, x: Value) -> Value:
    """The norm after the last layer, where there is one."""
    return pen.norm(x, stack.norm) if isinstance(stack.norm, nn.LayerNorm) else x


def see_each_other(pen: Pen, qkv: Value, mask: Value, heads: int, missing: Value | None = None) -> Value:
    """Self-attention of all slots at once, [rows, length, 3 width] -> [rows, length, width].

    With `missing` [1], keys are lengthened by so many hidden ones: to a border, up to which what is hidden adds exactly
    nothing, so that a sentence's numbers do not depend on how long its neighbours are.
    """
    queries, keys, values = pen.split(qkv, 3)
    if missing is not None:
        keys, values = pen.lengthen(keys, missing, 1), pen.lengthen(values, missing, 1)
    return pen.attend(queries, keys, values, mask, heads)


def decoder_layer(
    pen: Pen, layer: DecoderLayer, number: int, x: Value, see: See, read: Read, keep: Keep | None = None
) -> Value:
    """[rows, step, width] -> [rows, step, width]; where others are of use for their keys alone, of those to `keep`"""
    attention, cross = layer.attention, layer.cross
    mixed = see(number, linear(pen, attention.qkv, _enter(pen, layer.attention_residual, x)))
    x = x if keep is None else keep(x)
    x = _leave(pen, layer.attention_residual, x, mixed, attention.out)
    mixed = read(number, linear(pen, cross.q, _enter(pen, layer.cross_residual, x)))
    x = _leave(pen, layer.cross_residual, x, mixed, cross.out)
    return feed_forward(pen, layer.feed_forward, layer.feed_forward_residual, x)


def reader(pen: Pen, given: Mapping[str, Value], heads: int, step: Value) -> Read:
    """Cross-attention over the memory that was given, one source for every row."""
    mask = memory_mask(pen, given["visible"], step)

    def read(number: int, queries: Value) -> Value:
        return pen.attend(queries, given["memory_keys"][number], given["memory_values"][number], mask, heads)

    return read


def shared_reader(pen: Pen, given: Mapping[str, Value], heads: int, width: int) -> Read:
    """The same where several rows, side by side, read one source: they are read as one longer row."""
    ids = given["ids"]
    return side_by_side(pen, given, heads, width, pen.size(ids, 0), pen.size(ids, 1))


def side_by_side(pen: Pen, given: Mapping[str, Value], heads: int, width: int, rows: Value, step: Value) -> Read:
    """Cross-attention of `rows` [1] rows of `step` [1] slots, as many of them for each source of the memory."""
    visible = given["visible"]
    sources = pen.size(visible, 0)
    together = pen.node("Concat", sources, pen.integers(-1, width), axis=0)
    apart = pen.node("Concat", rows, pen.integers(-1, width), axis=0)
    tokens = pen.node("Mul", rows, step)
    mask = memory_mask(pen, visible, pen.node("Div", tokens, sources))

    def read(number: int, queries: Value) -> Value:
        keys, values = given["memory_keys"][number], given["memory_values"][number]
        mixed = pen.attend(pen.node("Reshape", queries, together), keys, values, mask, heads)
        return pen.node("Reshape", mixed, apart)

    return read


def memory_mask(pen: Pen, visible: Value, step: Value) -> Value:
    """visible [sources, source], step [1] -> [sources, 1, step, source]"""
    wide = pen.node("Unsqueeze", pen.additive(visible), pen.integers(1, 2))
    one = pen.integers(1)
    return pen.node("Expand", wide, pen.node("Concat", one, one, step, one, axis=0))


def project_memory(pen: Pen, layers: list[DecoderLayer], memory: Value) -> tuple[Value, Value]:
    """[rows, source, width] -> keys, values [layers, rows, heads, source, head]: one product for all layers"""
    weight = torch.cat([layer.cross.kv.weight for layer in layers])
    bias = torch.cat([layer.cross.kv.bias for layer in layers])
    flat = pen.linear(memory, weight, bias)
    split = pen.node("Reshape", flat, pen.integers(0, 0, len(layers), 2, layers[0].cross.heads, -1))
    turned = pen.node("Transpose", split, perm=[3, 2, 0, 4, 1, 5])
    keys, values = pen.node("Split", turned, outputs=2, axis=0, num_outputs=2)
    first = pen.integers(0)
    return pen.node("Squeeze", keys, first), pen.node("Squeeze", values, first)


def real(pen: Pen, lengths: Value, ids: Value) -> Value:
    """lengths [rows], ids [rows, source] -> visible [rows, source]; the first column always is"""
    longest = pen.column(pen.node("Max", lengths, pen.integer(1)))
    return pen.node("Less", pen.arange(pen.size(ids, 1)), longest)


def embed_source(pen: Pen, model: Transformer, ids: Value) -> Value:
    """Twin of :meth:`Transformer.embed_source`."""
    table = model.target_embedding if model.source_embedding is None else model.source_embedding
    places = pen.look_up(position_table(model.source_positions), pen.arange(pen.size(ids, 1)))
    return pen.node("Add", pen.look_up(table.weight * model.scale, ids), places)


def position_table(module: nn.Module) -> Tensor:
    """[n, width] the positions 0, 1, ..."""
    table: Tensor = module.table[module.longest :] if isinstance(module, SinusoidalPositions) else module.weight  # type: ignore[assignment]
    return table


def choices(pen: Pen, logits: Value, positions: Value, longest: Value, forbidden: Value, vocabulary: int) -> Value:
    """[rows, step] the best id for output positions [rows, step], EOS from each row's `longest` [rows] on"""
    must_end = pen.node("GreaterOrEqual", positions, pen.column(longest))
    return pen.node("Where", must_end, pen.integer(EOS), pen.best(logits, forbidden, vocabulary))


# --- programs --------------------------------------------------------------------------------------------------------


def remember(model: Transformer) -> Drawing:
    """Twin of :meth:`Transformer.remember`."""
    o = model.options

    def draw(pen: Pen, given: Mapping[str, Value]) -> dict[str, Value]:
        ids = given["ids"]
        visible = real(pen, given["lengths"], ids)
        states = encoder(pen, model.encoder, embed_source(pen, model, ids), visible)
        keys, values = project_memory(pen, model.decoder_layers(), states)
        return {"keys": keys, "values": values, "visible": visible, "states": states}

    return Drawing(
        modules=(model,),
        feeds=lambda ids, lengths: Feeds({"ids": ids, "lengths": lengths}),
        inputs={"ids": (I64, ("rows", "source")), "lengths": (I64, ("rows",))},
        state={},
        outputs=memory_outputs(o.decoder_layers, o.heads, o.head_width, o.width),
        draw=draw,
        result=lambda found, feeds: Memory(found["keys"], found["values"], found["visible"], found["states"]),
    )


def memory_outputs(
    layers: int, heads: int, head: int, width: int
) -> dict[str, tuple[torch.dtype, tuple[str | int, ...]]]:
    """What a drawing that makes a memory gives."""
    return {
        "keys": (F32, (layers, "rows", heads, "source", head)),
        "values": (F32, (layers, "rows", heads, "source", head)),
        "visible": (BOOL, ("rows", "source")),
        "states": (F32, ("rows", "source", width)),
    }


def memory_inputs(layers: int, heads: int, head: int) -> dict[str, tuple[torch.dtype, tuple[str | int, ...]]]:
    """What a drawing that reads a memory takes."""
    return {
        "memory_keys": (F32, (layers, "sources", heads, "source", head)),
        "memory_values": (F32, (layers, "sources", heads, "source", head)),
        "visible": (BOOL, ("sources", "source")),
    }


def cache_state(layers: int, heads: int, head: int) -> dict[str, tuple[torch.dtype, tuple[str | int, ...]]]:
    """What a drawing that keeps keys and values reads and writes."""
    shape = (layers, "rows", heads, "slots", head)
    return {"keys": (F32, shape), "values": (F32, shape)}


LAYERED = frozenset({"keys", "values", "memory_keys", "memory_values"})


def step_feeds(ids: Tensor, start: Tensor, cache: Cache, memory: Memory, span: int | None = None) -> Feeds:
    """The arguments of a step. The graph finds out by itself how many slots to look at, whatever the `span`."""
    inputs = {
        "ids": ids,
        "start": start,
        "memory_keys": memory.keys,
        "memory_values": memory.values,
        "visible": memory.visible,
    }
    return Feeds(inputs, {"keys": cache.keys, "values": cache.values})


def verify(model: Transformer, choose: Choose | None = None, chooser: tuple[nn.Module, ...] = ()) -> Drawing:
    """Twin of :func:`longstride.nn.programs.verify`; `choose` reads the weights of `chooser`."""
    o = model.options

    def draw(pen: Pen, given: Mapping[str, Value]) -> dict[str, Value]:
        read = reader(pen, given, o.heads, pen.size(given["ids"], 1))
        hidden, kept = _extend(pen, model, given, read)
        chosen = hidden if choose is None else choose(pen, hidden)
        return {"logits": pen.linear(chosen, model.output_weight), "hidden": hidden, **kept}

    return Drawing(
        modules=(model, *chooser),
        feeds=step_feeds,
        inputs=step_inputs(model),
        state=cache_state(o.decoder_layers, o.heads, o.head_width),
        outputs={"logits": (F32, ("rows", "step", o.vocabulary)), "hidden": (F32, ("rows", "step", o.width))},
        draw=draw,
        result=lambda found, feeds: (found["logits"], found["hidden"]),
        layered=LAYERED,
    )


def extend(model: Transformer) -> Drawing:
    """Twin of :func:`longstride.nn.programs.extend`."""
    o = model.options

    def draw(pen: Pen, given: Mapping[str, Value]) -> dict[str, Value]:
        hidden, kept = _extend(pen, model, given, shared_reader(pen, given, o.heads, o.width))
        return {"logits": pen.linear(hidden, model.output_weight), **kept}

    return Drawing(
        modules=(model,),
        feeds=step_feeds,
        inputs=step_inputs(model),
        state=cache_state(o.decoder_layers, o.heads, o.head_width),
        outputs={"logits": (F32, ("rows", "step", o.vocabulary))},
        draw=draw,
        result=lambda found, feeds: found["logits"],
        layered=LAYERED,
    )


def step_inputs(model: Transformer) -> dict[str, tuple[torch.dtype, tuple[str | int, ...]]]:
    """What the drawing of a step takes."""
    o = model.options
    return {
        "ids": (I64, ("rows", "step")),
        "start": (I64, ("rows",)),
        **memory_inputs(o.decoder_layers, o.heads, o.head_width),
    }


def _extend(pen: Pen, model: Transformer, given: Mapping[str, Value], read: Read) -> tuple[Value, dict[str, Value]]:
    """Hidden states of the new slots and the caches with them: twin of :meth:`Transformer.extend`."""
    ids, start = given["ids"], given["start"]
    step = pen.size(ids, 1)
    slots = pen.node("Add", pen.column(start), pen.arange(step))
    used = used_slots(pen, start, step)
    seen = pen.arange(used)
    mask = pen.additive(pen.node("Unsqueeze", pen.node("LessOrEqual", seen, pen.column(slots)), pen.integers(1)))
    # A draft may run past the last position there is: no such token is ever committed.
    places = pen.node("Min", slots, pen.integer(model.options.longest - 1))
    x = pen.node(
        "Add",
        pen.look_up(model.target_embedding.weight * model.scale, ids),
        pen.look_up(position_table(model.target_positions), places),
    )
    return run(pen, model, given, read, x, mask, used)


def run(
    pen: Pen, model: Transformer, given: Mapping[str, Value], read: Read, x: Value, mask: Value, used: Value
) -> tuple[Value, dict[str, Value]]:
    """Embedded slots x [rows, step, width] from each row's start through the decoder, and the caches with them.

    They see the first `used` [1] slots of the cache, to whose scores mask [rows, 1, step, used] is added.
    """
    start, heads = given["start"], model.options.heads
    kept: dict[str, list[Value]] = {"keys": [], "values": []}

    def see(number: int, qkv: Value) -> Value:
        queries, keys, values = pen.split(qkv, 3)
        for name, new in (("keys", keys), ("values", values)):
            kept[name].append(pen.write(given[name][number], pen.split_heads(new, heads), start))
        keys, values = (pen.cut(kept[name][number], pen.integers(0), used, 2) for name in ("keys", "values"))
        return pen.attend(queries, keys, values, mask, heads)

    for number, layer in enumerate(model.decoder_layers()):
        x = decoder_layer(pen, layer, number, x, see, read)
    return close(pen, model.decoder, x), kept


def used_slots(pen: Pen, start: Value, step: Value) -> Value:
    """[1] how many slots of the cache any row looks at, rounded up as caches are.

    What is hidden adds exactly nothing wherever the slots end, as long as they end at such a border: so results do not
    depend on how far other rows, or wider steps, have come.
    """
    furthest = pen.node("Add", pen.node("ReduceMax", start, pen.integers(0), keepdims=1), step)
    return aligned(pen, furthest)


def aligned(pen: Pen, slots: Value) -> Value:
    """[1] so many slots, rounded up as caches are"""
    portions = pen.node("Div", pen.node("Add", slots, pen.integers(ALIGNMENT - 1)), pen.integers(ALIGNMENT))
    return pen.node("Mul", portions, pen.integers(ALIGNMENT))


def missing_slots(pen: Pen, slots: Value) -> Value:
    """[1] how many slots there are from here to the next such border"""
    return pen.node("Sub", aligned(pen, slots), slots)
