"""Tables on loan: a session asks its runner for one that an earlier session has left, and leaves it to the next."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from longstride.contract import Runner
from longstride.contract.running import K, Kept
from longstride.contract.slots import Slots

SHORTEST_SOURCE = 16
"""Where tables are kept, they are made for no less: so many tokens cost what one does."""


@dataclass(frozen=True)
class Lease:
    """A table of one family and shape, on loan from the runner."""

    runner: Runner
    family: Hashable
    """what tells tables of equal shape apart: the models and all that is fixed about the search"""
    capacity: int
    longest_source: int

    @staticmethod
    def of(runner: Runner, family: Hashable, capacity: int, longest_source: int, positions: int) -> Lease:
        """For `capacity` sentences, or somewhat more where few shapes are better than fitting ones.

        `positions` is the longest source that the models can read.
        """
        widest = min(runner.room(longest_source, SHORTEST_SOURCE), positions)
        return Lease(runner, family, runner.room(capacity), max(longest_source, widest))

    def borrow(self, make: Callable[[int, int], K]) -> K:
        """A table of this kind; `make` is given its capacity and its longest source."""
        return self.runner.borrow(self.family, self._shape, lambda: make(*self._shape))

    def give_back(self, table: Kept, slots: Slots) -> None:
        """Whoever wants one like it next may have it; not while it is in use, nor after some slots were dropped."""
        if slots.free == self.capacity:
            self.runner.give_back(self.family, self._shape, table)

    @property
    def _shape(self) -> tuple[int, int]:
        return (self.capacity, self.longest_source)
