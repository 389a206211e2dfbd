"""Tables on loan, and the sentences in them.

A session asks its runner for a table that an earlier session has left, keeps book of which sentence stands in which
slot, and leaves it to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from longstride.contract import Runner, Session
from longstride.contract.running import K, Pooled

SHORTEST_SOURCE = 16
"""Where tables are kept, they are made for no less: so many tokens cost what one does."""


class Table(Pooled, Protocol):
    """What a session keeps on the device."""

    def drop(self, slot: int) -> None:
        """The sentence in this slot is given up: it idles until another one is admitted there."""


T = TypeVar("T", bound=Table)


@dataclass(frozen=True)
class PoolKey:
    """A table of one family and shape, on loan from the runner."""

    runner: Runner
    family: Hashable
    """what tells tables of equal shape apart: the models and all that is fixed about the search"""
    capacity: int
    longest_source: int

    @staticmethod
    def of(runner: Runner, family: Hashable, capacity: int, longest_source: int, positions: int) -> PoolKey:
        """For `capacity` sentences, or somewhat more where few shapes are better than fitting ones.

        `positions` is the longest source that the models can read.
        """
        widest = min(runner.round_up(longest_source, SHORTEST_SOURCE), positions)
        return PoolKey(runner, family, runner.round_up(capacity), max(longest_source, widest))

    def acquire(self, make: Callable[[int, int], K]) -> K:
        """A table of this kind; `make` is given its capacity and its longest source."""
        return self.runner.acquire(self.family, self._shape, lambda: make(*self._shape))

    def release(self, table: Pooled, slots: Slots) -> None:
        """Whoever wants one like it next may have it; not while it is in use, nor after some slots were dropped."""
        if slots.free == self.capacity:
            self.runner.release(self.family, self._shape, table)

    @property
    def _shape(self) -> tuple[int, int]:
        return (self.capacity, self.longest_source)


class PooledSession(Session, Generic[T]):
    """A session whose table is on loan: all that changes on the device lies in it, and the host knows the slots."""

    def __init__(self, key: PoolKey, make: Callable[[int, int], T]) -> None:
        self.calls = 0
        self.capacity = key.capacity
        self.table = key.acquire(make)
        self._key = key
        self._runner = key.runner
        self._slots = Slots(key.capacity)

    @property
    def free(self) -> int:
        """How many slots are empty."""
        return self._slots.free

    def cancel(self, ticket: int) -> None:
        """Its slot idles until another sentence takes it."""
        slot = self._slots.slot_of(ticket)
        self.table.drop(slot)
        self._slots.release(slot)

    def close(self) -> None:
        """Leave the table to the next session that wants one like it."""
        self._key.release(self.table, self._slots)


# --- which sentence stands in which slot, as the host knows it without asking the device -----------------------------


class Slots:
    """The places of a session's table. Sentences get tickets in the order they come."""

    def __init__(self, capacity: int) -> None:
        self.held: list[int | None] = [None] * capacity
        """per slot, the ticket of the sentence in it; None where it is empty"""
        self._next = 0

    @property
    def free(self) -> int:
        """How many slots are empty."""
        return self.held.count(None)

    def take(self, count: int) -> tuple[list[int], list[int]]:
        """Give `count` new sentences a slot and a ticket each."""
        slots = [slot for slot, ticket in enumerate(self.held) if ticket is None][:count]
        if len(slots) < count:
            raise ValueError(f"expected {count} empty slots, found {len(slots)}")
        tickets = list(range(self._next, self._next + count))
        self._next += count
        for slot, ticket in zip(slots, tickets, strict=True):
            self.held[slot] = ticket
        return slots, tickets

    def ready(self, done: Sequence[bool]) -> list[int]:
        """The slots with a sentence in them that is done."""
        return [slot for slot, ticket in enumerate(self.held) if ticket is not None and done[slot]]

    def release(self, slot: int) -> int:
        """Empty a slot; the ticket of the sentence that was in it."""
        ticket = self.held[slot]
        if ticket is None:
            raise ValueError(f"expected a sentence in slot {slot}, found none")
        self.held[slot] = None
        return ticket

    def slot_of(self, ticket: int) -> int:
        """Where a sentence stands."""
        if ticket not in self.held:
            raise ValueError(f"expected a sentence that is being decoded, found ticket {ticket}")
        return self.held.index(ticket)

    def thinned(self) -> list[int]:
        """The slots in use once they are half of all or fewer, for a table that can drop the others; else none."""
        used = [slot for slot, ticket in enumerate(self.held) if ticket is not None]
        return used if len(used) * 2 <= len(self.held) else []

    def keep(self, slots: Sequence[int]) -> None:
        """Drop all slots but these."""
        self.held = [self.held[slot] for slot in slots]
