"""A teacher without a model: every letter is a token, and the fake decoder copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from longstride.contract import Decoded, Limits, Source
from longstride.contract.decoding import Tell
from longstride.distillation.decoding import Teacher
from tests.fakes import CopyDecoder

FIRST = 5


def encode(lines: Sequence[str]) -> list[list[int]]:
    return [[FIRST + ord(letter) for letter in line] for line in lines]


def decode(rows: Sequence[Sequence[int]]) -> list[str]:
    return ["".join(chr(token - FIRST) for token in row) for row in rows]


class WatchedDecoder(CopyDecoder):
    """Copies; remembers the groups it was given, and can be made to stop as by Ctrl-C or to answer by a function."""

    def __init__(self) -> None:
        self.groups: list[tuple[int, int, int]] = []  # rows, width, capacity
        self.stop_after: int | None = None
        self.answer: Callable[[list[int]], list[int]] = lambda tokens: tokens

    def decode(
        self,
        source: Source,
        limits: Limits | None = None,
        capacity: int | None = None,
        trace: bool = False,
        tell: Tell | None = None,
    ) -> Decoded:
        if self.stop_after is not None and len(self.groups) >= self.stop_after:
            raise KeyboardInterrupt
        self.groups.append((source.rows, source.longest, capacity or source.rows))
        found = super().decode(source, limits, capacity, trace)
        changed = [[replace(best, tokens=self.answer(best.tokens))] for (best, *_) in found.hypotheses]
        return replace(found, hypotheses=changed)


@pytest.fixture
def decoder() -> WatchedDecoder:
    return WatchedDecoder()


@pytest.fixture
def teacher(decoder: WatchedDecoder) -> Teacher:
    return Teacher(decoder, encode, decode, hashes=("aa", "bb"), vocabulary="cc", limits=Limits())
