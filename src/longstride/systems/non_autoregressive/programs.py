"""The model calls of one-pass decoding, as programs a runner carries out."""

from __future__ import annotations

from functools import partial

from longstride.contract import Program
from longstride.systems.non_autoregressive import drawn, filling
from longstride.systems.non_autoregressive.model import OnePass


def encode(model: OnePass) -> Program:
    """(ids [rows, source], lengths [rows], padded) -> Encoded"""
    return Program("encode", partial(filling.encode, model), drawn.encode(model))


def fill(model: OnePass) -> Program:
    """(banned [vocabulary], dedup, encoded, lengths [rows, n], odds [rows, n], columns) -> Filled"""
    return Program("fill", partial(filling.fill, model), drawn.fill(model))
