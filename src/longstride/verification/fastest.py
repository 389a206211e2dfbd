"""Decoders with the same outputs: which is fastest here is found while they work, and nothing is decoded twice.

Whether drafts pay for a sentence by itself hangs on the processor and on who else is at work. Where a step waits for
memory, nine words cost little more than one; where the model fits into caches they may cost four times as much. So does
whether a few sentences are decoded side by side, without drafts, or one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TypeVar

import torch

from longstride.contract import Decoder, Finished, Limits, LongstrideError, Need, Session, Source, Step
from longstride.verification.draft_policy import best_of

R = TypeVar("R")
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
        self._counted = [0] * (1 + len(others))  # sessions, by decoder
        self._spent = [(0.0, 0)] * (1 + len(others))  # seconds and tokens of those that were timed
        self.chosen: Decoder | None = None
        """once it is known"""

    @property
    def signature(self) -> str:
        """The usual one's: outputs are the same."""
        return self._made[0].signature

    @property
    def runs(self) -> list[str]:
        """Names of the decoders that the next sentences may be decoded by."""
        return list(dict.fromkeys(one.name for one in (self._made if self.chosen is None else [self.chosen])))

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """Start a session of :meth:`upcoming`."""
        return self.upcoming().start(capacity, limits, longest_source)

    def upcoming(self) -> Decoder:
        """Return the fastest decoder or, while there are trials, the next one to time."""
        if self.chosen is not None:
            return self.chosen
        # The first two are the usual one's: who has one sentence alone waits for nothing else.
        turn = min(self._open, key=self._counted.__getitem__) if self._counted[0] >= 2 else 0
        if turn == len(self._made):
            try:
                self._made.append(self._makers[turn - 1]())
            except LongstrideError:  # nobody asked for it: a damaged drafter is no reason to write nothing
                self.chosen = self._made[0]
                return self.chosen
        return _Timed(self._made[turn], partial(self._note, turn))

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


class _Timed(Decoder):
    """A decoder whose sessions are timed: `note` hears of their seconds and tokens."""

    def __init__(self, decoder: Decoder, note: Callable[[float, int], None]) -> None:
        self._decoder, self._note = decoder, note
        self.name, self.special, self.obeys = decoder.name, decoder.special, decoder.obeys

    @property
    def signature(self) -> str:
        """The decoder's."""
        return self._decoder.signature

    def need(self, limits: Limits, longest_source: int) -> Need | None:
        """The decoder's."""
        return self._decoder.need(limits, longest_source)

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """The decoder's, timed."""
        begun = perf_counter()
        session = self._decoder.start(capacity, limits, longest_source)
        return _TimedSession(session, perf_counter() - begun, self._note)


class _TimedSession(Session):
    """A session that adds up the time of its own calls and reports it when all sentences are finished. Work outside the
    session, such as making a trace, is not timed."""

    def __init__(self, session: Session, seconds: float, note: Callable[[float, int], None]) -> None:
        self._session, self._seconds, self._note = session, seconds, note
        self.capacity, self.portion, self.calls = session.capacity, session.portion, session.calls
        self._left = self._tokens = 0
        self._whole = True  # nothing was given up

    @property
    def free(self) -> int:
        """The session's."""
        return self._session.free

    def admit(self, source: Source) -> list[int]:
        """Timed."""
        self._left += source.rows
        return self._timed(partial(self._session.admit, source))

    def advance(self) -> Step:
        """Timed."""
        return self._timed(self._session.advance)

    def take_finished(self) -> list[Finished]:
        """Timed; the last sentence reports the time and tokens of all."""
        done = self._timed(self._session.take_finished)
        self._tokens += sum(len(one.hypotheses[0].tokens) for one in done)
        self._gone(len(done))
        return done

    def cancel(self, ticket: int) -> None:
        """Cancel it; a session with a cancelled sentence reports no time."""
        self._session.cancel(ticket)
        self._whole = False
        self._gone(1)

    def settle(self) -> None:
        """The session may."""
        self._session.settle()

    def close(self) -> None:
        """Close the session."""
        self._session.close()

    def _gone(self, sentences: int) -> None:
        self._left -= sentences
        if sentences and not self._left:
            if self._whole:
                self._note(self._seconds, self._tokens)
            self._seconds, self._tokens, self._whole = 0.0, 0, True

    def _timed(self, work: Callable[[], R]) -> R:
        begun = perf_counter()
        found = work()
        self._seconds += perf_counter() - begun
        self.calls = self._session.calls
        return found


class OneByOne(Decoder):
    """Sentences one after the other, by what decodes one."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.name, self.special, self.obeys = decoder.name, decoder.special, decoder.obeys

    @property
    def signature(self) -> str:
        """That of whoever decodes."""
        return self._decoder.signature

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """One after the other, whatever the capacity."""
        return _OneByOneSession(self._decoder, capacity, limits)


class _OneByOneSession(Session):
    """Sentences that wait for the one before them."""

    def __init__(self, decoder: Decoder, capacity: int, limits: Limits) -> None:
        self.capacity, self.calls = capacity, 0
        self._decoder, self._limits = decoder, limits
        self._waiting: dict[int, Source] = {}  # by ticket; the first is being decoded
        self._tickets = self._own = 0  # given out, and what the session calls the first
        self._session: Session | None = None

    @property
    def free(self) -> int:
        """The number of sentences that may still be admitted."""
        return self.capacity - len(self._waiting)

    def admit(self, source: Source) -> list[int]:
        """Let sentences wait, each as if it had come by itself."""
        first, self._tickets = self._tickets, self._tickets + source.rows
        for row, length in enumerate(source.lengths.tolist()):
            one = source.slice(row, row + 1)
            self._waiting[first + row] = replace(one, ids=one.ids[:, :length]) if length < one.longest else one
        return list(range(first, self._tickets))

    def advance(self) -> Step:
        """One iteration of the first."""
        ticket, source = next(iter(self._waiting.items()))
        if self._session is None:
            self._session = self._decoder.begin(source, self._limits, 1)
            (self._own,) = self._session.admit(source)
            self._session.settle()
        step = self._session.advance()
        return replace(step, ticket=torch.full_like(step.ticket, ticket))

    def take_finished(self) -> list[Finished]:
        """The first, if it is done."""
        done = self._session.take_finished() if self._session is not None else []
        return [Finished(self._next(), one.hypotheses) for one in done]

    def cancel(self, ticket: int) -> None:
        """It need not wait."""
        if self._session is not None and ticket == next(iter(self._waiting)):
            self._session.cancel(self._own)
            self._next()
        else:
            del self._waiting[ticket]

    def _next(self) -> int:
        """Go on with the next one; the ticket of the one before."""
        assert self._session is not None
        self.calls += self._session.calls
        self._session.close()
        self._session = None
        ticket = next(iter(self._waiting))
        del self._waiting[ticket]
        return ticket
