"""Blockwise decoding's model calls once more, drawn for runners that build graphs of their own (longstride.nn.pen).

Twins of what model.py computes; tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from longstride.contract import Drawing, Feeds
from longstride.nn import drawn, drawn_link
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
        flat = _outputs(pen, heads, hidden, (k - 1 + learned_before) * width, learned_before * width)
        states = pen.node("Add", hidden, pen.node("Reshape", flat, pen.integers(0, -1, width)))
        logits = pen.linear(states, model.output_weight)
        if heads.link is None:
            return {"ids": pen.best(logits, given["forbidden"], vocabulary)}
        return {"ids": drawn_link.drafted(pen, heads.link, logits, states, given["newest"], k - 1)}

    # A graph has no inputs that it does not read.
    wanted = "forbidden" if heads.link is None else "newest"
    dimension = "banned" if heads.link is None else "rows"

    def feeds(hidden: Tensor, newest: Tensor, forbidden: Tensor) -> Feeds:
        return Feeds({"hidden": hidden, wanted: forbidden if heads.link is None else newest})

    return Drawing(
        modules=(model, heads),
        feeds=feeds,
        inputs={"hidden": (torch.float32, ("rows", width)), wanted: (torch.int64, (dimension,))},
        state={},
        outputs={"ids": (torch.int64, ("rows", k - 1))},
        draw=draw,
        result=lambda found, feeds: found["ids"],
        settings=(k,),
    )


def _outputs(pen: Pen, heads: Heads, hidden: Value, last: int, first: int = 0) -> Value:
    """[..., width] -> some of the units that all heads' outputs are made of, the residual sum not yet made"""
    units = pen.activation(drawn.linear(pen, heads.up, hidden), heads.options.activation)
    return pen.linear(units, heads.down.weight[first:last], heads.down.bias[first:last])
