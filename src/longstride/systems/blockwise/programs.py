"""Blockwise decoding's own model calls, as programs a runner carries out: verify by head 1, predict the next block."""

from __future__ import annotations

from torch import Tensor

from longstride.contract import Program
from longstride.nn import programs
from longstride.nn.transformer import Transformer
from longstride.systems.blockwise import drawn
from longstride.systems.blockwise.model import Heads


def verify(model: Transformer, heads: Heads) -> Program:
    """(ids [rows, step], start [rows], cache, memory) -> head 1's logits [rows, step, vocabulary], hidden states"""
    return programs.verify(model, heads.first, drawn.verify(model, heads))


def predict(model: Transformer, heads: Heads, k: int) -> Program:
    """(hidden [rows, width], newest [rows], forbidden ids [n]) -> the choices of heads 2 to k, [rows, k - 1]

    The newest token is the one that these states chose. A link goes on from there, and is told nothing of forbidden
    ids: no draft of them is ever accepted. Without a link heads do not know what was chosen.
    """

    def function(hidden: Tensor, newest: Tensor, forbidden: Tensor) -> Tensor:
        if heads.link is not None:
            return heads.linked(hidden, newest, k, model.output_weight)
        return model.logits(heads.ahead(hidden, k)).index_fill(-1, forbidden, float("-inf")).argmax(dim=-1)

    return Program("heads", function, drawn.predict(model, heads, k))
