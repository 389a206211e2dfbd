"""Tables that sessions have given back, kept for the next one: the longest unused go first."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from longstride.contract.running import K, Pooled

MOST_RECORDINGS = 12
"""Of one family: recording is part of what a person waits for, so a family that needs more should need fewer shapes."""
MOST_BYTES = 2 << 30
SHARE = 5
"""The part of a device's memory that tables may hold while nobody uses them, where that is more than MOST_BYTES: a beam
of 128 sentences fills gigabytes, and what was let go is allocated and recorded anew."""


def most_bytes(memory: int) -> int:
    """What tables may hold on a device with so many bytes of memory."""
    return max(MOST_BYTES, memory // SHARE)


@dataclass(frozen=True)
class _Free:
    """A table that waits, and what it holds: while it waits, that does not change."""

    family: Hashable
    shape: Hashable
    table: Pooled
    recordings: int
    nbytes: int


class Tables:
    """Free tables by family and shape. What is lent is nobody's here."""

    def __init__(self, most_recordings: int = MOST_RECORDINGS, most_bytes: int = MOST_BYTES) -> None:
        self._most_recordings = most_recordings
        self._most_bytes = most_bytes
        self._free: list[_Free] = []  # the longest unused first

    def __iter__(self) -> Iterator[Pooled]:
        return (free.table for free in self._free)

    def acquire(self, family: Hashable, shape: Hashable, make: Callable[[], K]) -> K:
        """The one of this kind that was used last, or a new one."""
        free = self._found(family, shape)
        if free is None:
            return make()
        self._drop(free)
        found: K = free.table  # type: ignore[assignment]  # it is what `make` made before
        return found

    def holds(self, family: Hashable, shape: Hashable) -> bool:
        """Whether there is one of this kind."""
        return self._found(family, shape) is not None

    def _found(self, family: Hashable, shape: Hashable) -> _Free | None:
        return next((one for one in reversed(self._free) if one.shape == shape and one.family == family), None)

    def release(self, family: Hashable, shape: Hashable, table: Pooled) -> None:
        """Keep it, and let others go as far as there would be too many."""
        self._free.append(_Free(family, shape, table, table.recordings, table.nbytes))
        before = len(self._free)
        # Families are compared only where one could have too many: this is asked after every sentence.
        if sum(free.recordings for free in self._free) > self._most_recordings:
            kin = [free for free in self._free if free.family == family]
            while len(kin) > 1 and sum(free.recordings for free in kin) > self._most_recordings:
                self._drop(kin.pop(0))
        while len(self._free) > 1 and sum(free.nbytes for free in self._free) > self._most_bytes:
            self._drop(self._free[0])
        if len(self._free) < before:
            # A table and its recordings hold each other: collected here, it does not wait, nor go while one is made.
            gc.collect()

    def _drop(self, entry: _Free) -> None:
        self._free = [other for other in self._free if other is not entry]
