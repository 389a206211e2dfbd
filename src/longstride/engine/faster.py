"""Two decoders with the same outputs: which is faster here is found while both work, and nothing is decoded twice.

Whether drafts pay for a sentence by itself hangs on the processor and on who else is at work. Where a step waits for
memory, nine words cost little more than one; where the model fits into caches they may cost four times as much.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from time import perf_counter

from longstride.contract import Decoded, Decoder, Limits, Session, Source
from longstride.contract.decoding import Tell

TRIALS = 4
"""Outputs of each that are timed, after a first that is not: it makes and binds what the others use."""
TELLING = 8
"""Tokens that an output must have to count: the shorter it is, the less drafts bring."""


class Faster(Decoder):
    """One of two, which `other` makes when its turn comes: the usual one first."""

    name = "faster"

    def __init__(self, usual: Decoder, other: Callable[[], Decoder]) -> None:
        self._usual, self._make = usual, other
        self.special, self.obeys = usual.special, usual.obeys
        self._begun = [0, 0]  # outputs that count, by decoder
        self._spent = [(0.0, 0), (0.0, 0)]  # seconds and tokens of those that were timed
        self.chosen: Decoder | None = None
        """once it is known"""

    @cached_property
    def _other(self) -> Decoder:
        return self._make()

    @property
    def signature(self) -> str:
        """The usual one's: outputs are the same."""
        return self._usual.signature

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """By the usual one: what is not decoded whole is not timed."""
        return self._usual.start(capacity, limits, longest_source)

    def decode(
        self,
        source: Source,
        limits: Limits | None = None,
        capacity: int | None = None,
        trace: bool = False,
        tell: Tell | None = None,
    ) -> Decoded:
        """By whichever is the faster, or is to be tried."""
        if self.chosen is not None:
            return self.chosen.decode(source, limits, capacity, trace, tell)
        # The first two are the usual one's: who has one sentence alone waits for nothing else.
        turn = int(self._begun[0] >= 2 and self._begun[1] < self._begun[0])
        begun = perf_counter()
        found = (self._other if turn else self._usual).decode(source, limits, capacity, trace, tell)
        self._note(turn, perf_counter() - begun, sum(map(len, found.tokens)))
        return found

    def _note(self, turn: int, seconds: float, tokens: int) -> None:
        if tokens < TELLING:
            return
        if self._begun[turn]:
            spent, written = self._spent[turn]
            self._spent[turn] = (spent + seconds, written + tokens)
        self._begun[turn] += 1
        if min(self._begun) > TRIALS:
            each = [spent / written for spent, written in self._spent]
            self.chosen = self._other if each[1] < each[0] else self._usual
