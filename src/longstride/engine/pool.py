"""Tables on loan: a session asks its runner for one that an earlier session has left, and leaves it to the next."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from longstride.contract import Runner, Session
from longstride.contract.running import K, Pooled
from longstride.engine.slots import Slots

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
