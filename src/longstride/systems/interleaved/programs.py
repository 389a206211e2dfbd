"""The model call of an interleaved decoder, as a program a runner carries out."""

from __future__ import annotations

from longstride.contract import Program
from longstride.systems.interleaved import drawn
from longstride.systems.interleaved.model import InterleavedModel


def extend(model: InterleavedModel) -> Program:
    """(ids [rows, step], start [rows], cache, memory, layout, span) -> logits [rows, step, vocabulary]"""
    return Program("interleaved", model.step_logits, drawn.extend(model))
