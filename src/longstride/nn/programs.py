"""The shared Transformer's model calls, as programs a runner carries out."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from longstride.contract import Drawing, Program
from longstride.nn import drawn
from longstride.nn.cache import Cache, Memory
from longstride.nn.transformer import Transformer


def remember(model: Transformer) -> Program:
    """(ids [rows, source], lengths [rows]) -> Memory"""
    return Program("remember", model.remember, drawn.remember(model))


def verify(
    model: Transformer, choose: Callable[[Tensor], Tensor] | None = None, drawing: Drawing | None = None
) -> Program:
    """(ids [rows, step], start [rows], cache, memory) -> logits [rows, step, vocabulary], hidden [rows, step, width]

    `choose` changes hidden states before they are projected: a learned first head, say; `drawing` is then the whole
    program's, if it has one.
    """

    def function(ids: Tensor, start: Tensor, cache: Cache, memory: Memory) -> tuple[Tensor, Tensor]:
        hidden = model.extend(ids, start, cache, memory)
        return model.logits(hidden if choose is None else choose(hidden)), hidden

    return Program("verify", function, drawn.verify(model) if choose is None else drawing)


def extend(model: Transformer) -> Program:
    """(ids [rows, step], start [rows], cache, memory, span) -> logits [rows, step, vocabulary]"""

    def function(ids: Tensor, start: Tensor, cache: Cache, memory: Memory, span: int | None = None) -> Tensor:
        return model.logits(model.extend(ids, start, cache, memory, span=span))

    return Program("extend", function, drawn.extend(model))
