"""The shared Transformer's model calls, as programs a runner carries out."""

from __future__ import annotations

from torch import Tensor

from longstride.contract import Program
from longstride.nn.cache import Cache, Memory
from longstride.nn.transformer import Transformer


def remember(model: Transformer) -> Program:
    """(ids [rows, source], lengths [rows]) -> Memory"""
    return Program("remember", model.remember)


def extend(model: Transformer) -> Program:
    """(ids [rows, step], start [rows], cache, memory, span) -> logits [rows, step, vocabulary]"""

    def function(ids: Tensor, start: Tensor, cache: Cache, memory: Memory, span: int | None = None) -> Tensor:
        return model.logits(model.extend(ids, start, cache, memory, span=span))

    return Program("extend", function)
