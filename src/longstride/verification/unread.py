"""Sentences that a drafter has not read yet, for tables in which it may never be asked."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from longstride.contract import Source
from longstride.nn.cache import EncoderState


@dataclass(frozen=True)
class Portion:
    """Sentences that were encoded together."""

    rows: Tensor
    """[n] where they stand"""
    source: Source
    memory: EncoderState
    """the verifier's, with its states"""


class Unread:
    """Portions for a table of so many rows, in the order in which they came."""

    def __init__(self, capacity: int) -> None:
        self._lone = capacity == 1
        self._portions: list[Portion] = []

    def __bool__(self) -> bool:
        return bool(self._portions)

    def put(self, rows: Tensor, source: Source, memory: EncoderState) -> None:
        """Sentences that stand in these rows from now on."""
        if self._lone:
            self._portions = [Portion(rows, source, memory)]  # they lie where they are until the next one comes
            return
        new = set(rows.tolist())
        self._portions = [one for one in self._portions if not new.issuperset(one.rows.tolist())]
        own = Source(source.ids.clone(), source.lengths.clone())
        self._portions.append(Portion(rows.clone(), own, memory))

    def take(self, done: Tensor) -> list[Portion]:
        """All that hold a sentence which is not done [capacity], bool; none are left."""
        taken = [one for one in self._portions if not done[one.rows].all()]
        self._portions = []
        return taken
