"""The model call of an interleaved decoder, as a program a runner carries out."""

from __future__ import annotations

from torch import Tensor

from longstride.contract import Program
from longstride.nn.cache import Cache, Memory
from longstride.systems.interleaved.model import InterleavedModel


def extend(model: InterleavedModel) -> Program:
    """(ids [rows, step], start [rows], cache, memory, span) -> logits [rows, step, vocabulary]"""

    def function(ids: Tensor, start: Tensor, cache: Cache, memory: Memory, span: int | None = None) -> Tensor:
        return model.model.logits(model.extend(ids, start, cache, memory, span))

    return Program("interleaved", function)
