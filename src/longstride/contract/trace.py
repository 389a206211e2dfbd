"""How an output came about: what each iteration wrote, drafted and accepted. Every statistic is derived from this."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Trace:
    """The iterations of one sentence, in order."""

    events: tuple[Event, ...]

    @property
    def iterations(self) -> int:
        """How often the sentence advanced."""
        return len(self.events)

    @property
    def committed_per_step(self) -> list[int]:
        """Tokens made final by each iteration, EOS counted."""
        return [len(event.ids) if event.final else 0 for event in self.events]

    @property
    def accepted_per_step(self) -> list[int]:
        """Drafted tokens that stood, per iteration."""
        return [event.accepted for event in self.events]

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
        return [cells[position] for position in sorted(cells) if cells[position] != EOS]

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
                }
                for e in self.events
            ],
        }


class TraceBuilder:
    """Collects the steps of a session and sorts them by sentence."""

    def __init__(self) -> None:
        self._events: dict[int, list[Event]] = {}

    def add(self, step: Step) -> None:
        """Read one step back from the device and file it under its sentences."""
        active = step.active.tolist()
        tickets = step.ticket.tolist()
        positions, ids, written = step.position.tolist(), step.ids.tolist(), step.written.tolist()
        drafted, accepted = step.drafted.tolist(), step.accepted.tolist()
        drafts = step.draft.tolist() if step.draft is not None else None
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
            )
            self._events.setdefault(tickets[slot], []).append(event)

    def trace(self, ticket: int) -> Trace:
        """The finished trace of one sentence."""
        return Trace(tuple(self._events.get(ticket, ())))
