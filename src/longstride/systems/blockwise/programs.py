"""Blockwise decoding's own model calls, as programs a backend carries out: verify by head 1, predict the next block."""

from __future__ import annotations

import torch
from torch import Tensor

from longstride import ops
from longstride.contract import Feeds, Program
from longstride.nn import programs
from longstride.nn.transformer import Transformer
from longstride.ops.trace import Specification, traced
from longstride.systems.blockwise.model import Heads


def verify(model: Transformer, heads: Heads) -> Program:
    """(ids [rows, step], start [rows], cache, memory) -> head 1's logits [rows, step, vocabulary], hidden states"""
    return programs.verify(model) if heads.options.fixed else programs.verify(model, heads.first, (heads,))


def predict(model: Transformer, heads: Heads, k: int) -> Program:
    """(hidden [rows, width], newest [rows], forbidden ids [n]) -> the choices of heads 2 to k, [rows, k - 1]

    The newest token is the one that these states chose. A link goes on from there, and is told nothing of forbidden
    ids: no draft of them is ever accepted. Without a link heads do not know what was chosen.
    """
    linked = heads.link is not None

    def function(hidden: Tensor, newest: Tensor, forbidden: Tensor) -> Tensor:
        if linked:
            return heads.linked(hidden, newest, k, model)
        return ops.best(model.logits(heads.ahead(hidden, k)), forbidden)

    # A graph has no inputs that it does not read.
    wanted = "newest" if linked else "forbidden"
    inputs: Specification = {
        "hidden": (torch.float32, ("rows", heads.options.width)),
        wanted: (torch.int64, ("rows" if linked else "banned",)),
    }

    def feeds(hidden: Tensor, newest: Tensor, forbidden: Tensor) -> Feeds:
        return Feeds({"hidden": hidden, wanted: newest if linked else forbidden})

    return traced(
        "heads",
        function,
        (model, heads),
        inputs,
        {"ids": (torch.int64, ("rows", k - 1))},
        feeds=feeds,
        arguments=lambda given: (given["hidden"], given.get("newest"), given.get("forbidden")),
        settings=(k,),
    )
