"""How an output came about: what each iteration wrote, drafted and accepted. Every statistic is derived from this."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from longstride.contract.symbols import EOS

if TYPE_CHECKING:
    from longstride.contract.decoding import Step


@dataclass(frozen=True)
class Event:
    """What one iteration did to one sentence."""

    positions: tuple[int, ...]
    ids: tuple[int, ...]
    drafted: int
    accepted: int
    final: bool
    draft: tuple[int, ...] = ()
    """what was proposed, accepted or not"""
    parents: tuple[int, ...] = ()
    """where the draft is a tree, whom each of its tokens follows: 0 what is committed, j + 1 its token j from 0"""

    @property
    def branch(self) -> tuple[int, ...]:
        """Of the draft's tokens those that stood and, behind them, the likeliest: siblings come in that order. All of
        a chain."""
        if not self.parents:
            return tuple(range(self.drafted))
        found: list[int] = []
        slot = 0
        while children := [node for node in range(slot, len(self.parents)) if self.parents[node] == slot]:
            stood = self.ids[len(found)] if len(found) < min(self.accepted, len(self.ids)) else None
            found.append(next((node for node in children if self.draft[node] == stood), children[0]))
            slot = found[-1] + 1
        return tuple(found)

    @property
    def parted(self) -> int | None:
        """The place in the block at which the verifier chose something else than was drafted, if there was one.

        A draft that was cut short by its own end did not part from anything.
        """
        return self.accepted if self.accepted < min(len(self.branch), len(self.ids)) else None


@dataclass(frozen=True)
class Trace:
    """The iterations of one sentence, in order."""

    events: tuple[Event, ...]
    eos: int = EOS
    """the id that ends a sentence"""

    @property
    def iterations(self) -> int:
        """How often the sentence advanced."""
        return len(self.events)

    @property
    def committed_per_step(self) -> list[int]:
        """Tokens made final by each iteration, EOS counted."""
        return [len(event.ids) if event.final else 0 for event in self.events]

    @property
    def drafted(self) -> int:
        """Tokens drafted in all."""
        return sum(event.drafted for event in self.events)

    @property
    def accepted(self) -> int:
        """Drafted tokens that stood, in all."""
        return sum(event.accepted for event in self.events)

    @property
    def committed(self) -> int:
        """Tokens made final in all, EOS counted."""
        return sum(self.committed_per_step)

    @property
    def mean_block(self) -> float:
        """Tokens committed per iteration that had a draft to verify; without drafts, per iteration.

        A call that only proposes is left out, so that one head gives 1.00, as the blockwise paper counts.
        """
        verified = Trace(tuple(event for event in self.events if event.drafted) or self.events)
        return verified.committed / verified.iterations if verified.iterations else 0.0

    def replay(self) -> list[int]:
        """The output, by carrying out the final writes: ids in order of position, without EOS."""
        cells = {
            position: token
            for event in self.events
            if event.final
            for position, token in zip(event.positions, event.ids, strict=True)
        }
        return [cells[position] for position in sorted(cells) if cells[position] != self.eos]

    def as_dict(self) -> dict[str, Any]:
        """For JSON lines."""
        return {
            "iterations": self.iterations,
            "committed": self.committed,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "steps": [
                {
                    "positions": list(e.positions),
                    "ids": list(e.ids),
                    "drafted": e.drafted,
                    "accepted": e.accepted,
                    "draft": list(e.draft),
                    **({"parents": list(e.parents)} if e.parents else {}),
                }
                for e in self.events
            ],
        }


def events_of(step: Step) -> Iterator[tuple[int, Event, list[int] | None]]:
    """What a step did to each sentence: its ticket, and of writes that were held back the iterations they belong to."""
    active = step.active.tolist()
    tickets = step.ticket.tolist()
    positions, ids, written = step.position.tolist(), step.ids.tolist(), step.written.tolist()
    drafted, accepted = step.drafted.tolist(), step.accepted.tolist()
    drafts = step.draft.tolist() if step.draft is not None else None
    parents = step.parents.tolist() if step.parents is not None else None
    whens = step.when.tolist() if step.when is not None else None
    for slot, live in enumerate(active):
        if not live:
            continue
        columns = [column for column, yes in enumerate(written[slot]) if yes]
        event = Event(
            tuple(positions[slot][column] for column in columns),
            tuple(ids[slot][column] for column in columns),
            drafted[slot],
            accepted[slot],
            step.final,
            tuple(drafts[slot][: drafted[slot]]) if drafts is not None else (),
            _branching(parents[slot][: drafted[slot]]) if parents is not None else (),
        )
        yield tickets[slot], event, None if whens is None else [whens[slot][column] for column in columns]


def _branching(parents: list[int]) -> tuple[int, ...]:
    """The parents of a tree, none of a chain."""
    return () if parents == list(range(len(parents))) else tuple(parents)


class TraceBuilder:
    """Collects the steps of a session and sorts them by sentence."""

    def __init__(self, eos: int = EOS) -> None:
        self._eos = eos
        self._events: dict[int, list[Event]] = {}

    def add(self, step: Step) -> None:
        """Read one step back from the device and file it under its sentences."""
        for ticket, event, whens in events_of(step):
            self.put(ticket, event, whens)

    def put(self, ticket: int, event: Event, whens: list[int] | None) -> None:
        """File one event, as :func:`events_of` gives it."""
        events = self._events.setdefault(ticket, [])
        events.append(event)
        if whens is not None:
            _file(events, whens)

    def trace(self, ticket: int) -> Trace:
        """The finished trace of one sentence."""
        return Trace(_closed(self._events.get(ticket, []), self._eos), self._eos)


def _file(events: list[Event], whens: list[int]) -> None:
    """Put what the last event writes into the events it belongs to, one number for each token."""
    last = events[-1]
    events[-1] = replace(last, positions=(), ids=())
    for position, token, when in zip(last.positions, last.ids, whens, strict=True):
        event = events[when]
        events[when] = replace(event, positions=(*event.positions, position), ids=(*event.ids, token))


def _closed(events: list[Event], eos: int) -> tuple[Event, ...]:
    """The events of a sentence that has ended, with positions counted through from 0."""
    cells = {
        position: token for one in events if one.final for position, token in zip(one.positions, one.ids, strict=True)
    }
    words = sorted(position for position, token in cells.items() if token != eos)
    if len(words) == len(cells):
        return tuple(events)
    places = dict.fromkeys(cells, len(words)) | {position: place for place, position in enumerate(words)}
    return tuple(replace(one, positions=tuple(places.get(p, p) for p in one.positions)) for one in events)
