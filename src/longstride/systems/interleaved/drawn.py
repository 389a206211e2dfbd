"""An interleaved decoder's model calls once more, drawn for runners that build graphs of their own (longstride.nn.pen).

Twins of what model.py and a link compute; tests hold the two together. Where slots stand and whom they see comes in
with the layout, worked out by the model itself, so that one graph serves every variant.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from longstride.contract import Drawing, Feeds
from longstride.nn import drawn, drawn_link
from longstride.nn.cache import Cache, Memory
from longstride.nn.drawn import F32, I64, LAYERED
from longstride.nn.link import Link
from longstride.nn.pen import Pen, Value
from longstride.systems.interleaved.model import InterleavedModel, Interleaving, Layout


def extend(model: InterleavedModel) -> Drawing:
    """Twin of :meth:`InterleavedModel.step_logits`; several rows may read one source."""
    base = model.model
    o, link = base.options, model.interleaving.link

    def draw(pen: Pen, given: Mapping[str, Value]) -> dict[str, Value]:
        ids, start = given["ids"], given["start"]
        step = pen.size(ids, 1)
        slots = pen.node("Add", pen.column(start), pen.arange(step))
        used = drawn.used_slots(pen, start, step)
        sight = pen.cut(pen.node("Gather", given["sight"], slots, axis=0), pen.integers(0), used, 2)
        mask = pen.node("Unsqueeze", sight, pen.integers(1))
        embedded = pen.look_up(base.target_embedding.weight * base.scale, ids)
        embedded = _begin(pen, model.interleaving, embedded, slots)
        x = pen.node("Add", embedded, pen.node("Gather", given["places"], slots, axis=0))
        read = drawn.shared_reader(pen, given, o.heads, o.width)
        hidden, kept = drawn.run(pen, base, given, read, x, mask, used)
        tied = {} if link is None else {"factors": drawn_link.factors(pen, link, hidden)}
        return {"logits": pen.linear(hidden, base.output_weight), **tied, **kept}

    def feeds(
        ids: Tensor, start: Tensor, cache: Cache, memory: Memory, layout: Layout, span: int | None = None
    ) -> Feeds:
        step = drawn.step_feeds(ids, start, cache, memory, span)
        return Feeds({**step.inputs, "places": layout.places, "sight": layout.sight}, step.state)

    return Drawing(
        modules=(base, model.interleaving),
        feeds=feeds,
        inputs={
            **drawn.step_inputs(base),
            "places": (F32, ("layout", o.width)),
            "sight": (F32, ("layout", "layout")),
        },
        state=drawn.cache_state(o.decoder_layers, o.heads, o.head_width),
        outputs={
            "logits": (F32, ("rows", "step", o.vocabulary)),
            **({} if link is None else {"factors": (F32, ("rows", "step", model.options.link))}),
        },
        draw=draw,
        result=lambda found, feeds: (found["logits"], found.get("factors")),
        layered=LAYERED,
    )


def tie(link: Link) -> Drawing:
    """Twin of :meth:`Link.tied`, for slots that stand side by side in rows."""
    vocabulary, rank = link.after.weight.shape

    def draw(pen: Pen, given: Mapping[str, Value]) -> dict[str, Value]:
        return {"tied": drawn_link.tied(pen, link, given["logits"], given["factors"], given["previous"])}

    def feeds(logits: Tensor, factors: Tensor, previous: Tensor) -> Feeds:
        return Feeds({"logits": logits, "factors": factors, "previous": previous})

    return Drawing(
        modules=(link,),
        feeds=feeds,
        inputs={
            "logits": (F32, ("rows", "alike", vocabulary)),  # one of them may stand for several slots
            "factors": (F32, ("rows", "alike", rank)),
            "previous": (I64, ("rows", "slots")),
        },
        state={},
        outputs={"tied": (F32, ("rows", "slots", vocabulary))},
        draw=draw,
        result=lambda found, feeds: found["tied"],
    )


def _begin(pen: Pen, interleaving: Interleaving, embedded: Value, slots: Value) -> Value:
    """Twin of :meth:`Interleaving.begin`."""
    options = interleaving.options
    if options.start == "symbol":
        return embedded
    first = pen.column(pen.node("Less", slots, pen.integer(options.step)))
    if interleaving.starts is None:
        return pen.node("Where", first, pen.constant(torch.zeros(())), embedded)
    own = pen.look_up(interleaving.starts, pen.node("Min", slots, pen.integer(options.step - 1)))
    return pen.node("Where", first, own, embedded)
