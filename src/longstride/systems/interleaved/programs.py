"""The model calls of an interleaved decoder, as programs a runner carries out."""

from __future__ import annotations

from longstride.contract import Program
from longstride.nn.link import Link
from longstride.systems.interleaved import drawn
from longstride.systems.interleaved.model import InterleavedModel


def extend(model: InterleavedModel) -> Program:
    """(ids [rows, step], start [rows], cache, memory, layout, span) -> logits [rows, step, vocabulary], and with a link
    its factors [rows, step, rank], else None"""
    return Program("interleaved", model.step_logits, drawn.extend(model))


def tie(link: Link) -> Program:
    """(logits [rows, slots or 1, vocabulary], factors [rows, slots or 1, rank], words before them [rows, slots]) ->
    logits [rows, slots, vocabulary] given these words"""
    return Program("link", link.tied, drawn.tie(link))
