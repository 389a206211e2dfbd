"""Decoders with the same outputs: which is fastest here is found while they work, and nothing is decoded twice.

Whether drafts pay for a sentence by itself hangs on the processor and on who else is at work. Where a step waits for
memory, nine words cost little more than one; where the model fits into caches they may cost four times as much. So does
whether a few sentences are decoded side by side, without drafts, or one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

from longstride.contract import Decoded, Decoder, Limits, LongstrideError, Session, Source
from longstride.contract.decoding import Tell
from longstride.verification.draft_policy import best_of

TRIALS = 8
"""Outputs of each that are timed, after a first that is not, by which things are made and bound: drafts fare
differently from sentence to sentence, by a third with four."""
LONGER = 4
"""So many times as many of those that are close by then: processors fare differently from moment to moment, too."""
CLOSE = 1.15
"""What takes no longer than this many times the best."""
TELLING = 8
"""Tokens that an output must have to count: the shorter it is, the less drafts bring."""


class Fastest(Decoder):
    """One of several, of which all but the usual one are made when their turns come."""

    name = "fastest"

    def __init__(self, usual: Decoder, *others: Callable[[], Decoder]) -> None:
        self._made, self._makers = [usual], others
        self.special, self.obeys = usual.special, usual.obeys
        self._open: Sequence[int] = range(1 + len(others))  # those that may be the fastest yet
        self._trials = TRIALS
        self._counted = [0] * (1 + len(others))  # outputs, by decoder
        self._spent = [(0.0, 0)] * (1 + len(others))  # seconds and tokens of those that were timed
        self.chosen: Decoder | None = None
        """once it is known"""

    @property
    def signature(self) -> str:
        """The usual one's: outputs are the same."""
        return self._made[0].signature

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """By the usual one: what is not decoded whole is not timed."""
        return self._made[0].start(capacity, limits, longest_source)

    def decode(
        self,
        source: Source,
        limits: Limits | None = None,
        capacity: int | None = None,
        trace: bool = False,
        tell: Tell | None = None,
    ) -> Decoded:
        """By whichever is the fastest, or is to be tried."""
        if self.chosen is not None:
            return self.chosen.decode(source, limits, capacity, trace, tell)
        # The first two are the usual one's: who has one sentence alone waits for nothing else.
        turn = min(self._open, key=self._counted.__getitem__) if self._counted[0] >= 2 else 0
        if turn == len(self._made):
            try:
                self._made.append(self._makers[turn - 1]())
            except LongstrideError:  # nobody asked for it: a damaged drafter is no reason to write nothing
                self.chosen = self._made[0]
                return self.chosen.decode(source, limits, capacity, trace, tell)
        begun = perf_counter()
        found = self._made[turn].decode(source, limits, capacity, trace, tell)
        self._note(turn, perf_counter() - begun, sum(map(len, found.tokens)))
        return found

    def _note(self, turn: int, seconds: float, tokens: int) -> None:
        if tokens < TELLING:
            return
        if self._counted[turn]:
            spent, written = self._spent[turn]
            self._spent[turn] = (spent + seconds, written + tokens)
        self._counted[turn] += 1
        if min(self._counted[one] for one in self._open) > self._trials:
            each = {one: self._spent[one][0] / self._spent[one][1] for one in self._open}
            best = best_of(each)
            self._open = [one for one in self._open if each[one] < CLOSE * each[best]]
            if len(self._open) == 1 or self._trials > TRIALS:
                self.chosen = self._made[best]
            self._trials = LONGER * TRIALS


class OneByOne(Decoder):
    """Sentences one after the other, by what decodes one."""

    name = "one by one"

    def __init__(self, decoder: Decoder) -> None:
        self._decoder, self.special, self.obeys = decoder, decoder.special, decoder.obeys

    @property
    def signature(self) -> str:
        """That of whoever decodes."""
        return self._decoder.signature

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """What is not decoded whole stands side by side."""
        return self._decoder.start(capacity, limits, longest_source)

    def decode(
        self,
        source: Source,
        limits: Limits | None = None,
        capacity: int | None = None,
        trace: bool = False,
        tell: Tell | None = None,
    ) -> Decoded:
        """One after the other, whatever the capacity."""
        found = []
        for row, length in enumerate(source.lengths.tolist()):
            one = source.slice(row, row + 1)
            if length < one.longest:  # as if it had come by itself
                one = replace(one, ids=one.ids[:, :length])
            found.append(self._decoder.decode(one, limits, 1, trace))
            if tell is not None:
                tell([(row, found[-1].hypotheses[0])])
        return Decoded(
            [hypotheses for one in found for hypotheses in one.hypotheses],
            [steps for one in found for steps in one.traces or ()] if trace else None,
            sum(one.calls for one in found),
            sum(one.iterations for one in found),
        )
