"""Blockwise decoding's model calls once more, drawn for runners that build graphs of their own (longstride.nn.pen).

Twins of what model.py computes; tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from longstride.contract import Drawing, Feeds
from longstride.nn import drawn, drawn_link
from longstride.nn.link import Link
from longstride.nn.pen import Pen, Value
from longstride.nn.transformer import Transformer
from longstride.systems.blockwise.model import Heads


def verify(model: Transformer, heads: Heads) -> Drawing:
    """The verifier whose choices are the first head's."""
    if heads.options.fixed:
        return drawn.verify(model)

    def first(pen: Pen, hidden: Value) -> Value:
        outputs = _outputs(pen, heads, hidden, heads.options.width)
        return pen.node("Add", hidden, outputs)

    return drawn.verify(model, first, (heads,))


def predict(model: Transformer, heads: Heads, k: int) -> Drawing:
    """The choices of heads 2 to k."""
    width, vocabulary = heads.options.width, model.options.vocabulary
    learned_before = 1 - heads.options.fixed  # a learned first head lies before them

    def draw(pen: Pen, given: Mapping[str, Value]) -> dict[str, Value]:
        hidden = pen.node("Unsqueeze", given["hidden"], pen.integers(1))
        first = 0 if heads.link is not None else learned_before  # a link is told what head 1 chooses
        flat = _outputs(pen, heads, hidden, (k - 1 + learned_before) * width, first * width)
        states = pen.node("Add", hidden, pen.node("Reshape", flat, pen.integers(0, -1, width)))
        if heads.link is None:
            logits = pen.linear(states, model.output_weight)
        else:
            states = states if learned_before else pen.node("Concat", hidden, states, axis=1)
            logits = _linked(pen, heads.link, states, pen.linear(states, model.output_weight), k)
        return {"ids": drawn.best(pen, logits, given["forbidden"], vocabulary)}

    def feeds(hidden: Tensor, forbidden: Tensor) -> Feeds:
        return Feeds({"hidden": hidden, "forbidden": forbidden})

    return Drawing(
        modules=(model, heads),
        feeds=feeds,
        inputs={"hidden": (torch.float32, ("rows", width)), "forbidden": (torch.int64, ("banned",))},
        state={},
        outputs={"ids": (torch.int64, ("rows", k - 1))},
        draw=draw,
        result=lambda found, feeds: found["ids"],
        settings=(k,),
    )


def _linked(pen: Pen, link: Link, states: Value, logits: Value, k: int) -> Value:
    """Heads 2 to k, given what the heads before them choose: [rows, k, ...] -> [rows, k - 1, vocabulary]"""
    first = pen.cut(logits, pen.integers(0), pen.integers(1), 1)
    newest = pen.node("Squeeze", pen.node("ArgMax", first, axis=-1, keepdims=0), pen.integers(1))
    logits, states = (pen.cut(one, pen.integers(1), pen.integers(k), 1) for one in (logits, states))
    return drawn_link.chained(pen, link, logits, states, newest, k - 1)


def _outputs(pen: Pen, heads: Heads, hidden: Value, last: int, first: int = 0) -> Value:
    """[..., width] -> some of the units that all heads' outputs are made of, the residual sum not yet made"""
    units = pen.activation(drawn.linear(pen, heads.up, hidden), heads.options.activation)
    return pen.linear(units, heads.down.weight[first:last], heads.down.bias[first:last])
