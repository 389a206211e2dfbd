"""Tables that sessions have given back, kept for the next one of the same kind and shape: the longest unused go first.

Making a table, and binding what lies in it, takes as long as a draft. Sentences one by one need as many tables as they
have lengths, which is why these are many and small; a large one is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from longstride.contract.running import K, Kept

MOST = 128
MOST_BYTES = 256 << 20


class KeptTables:
    """Free tables by family and shape, of which one each is kept. What is lent is nobody's here."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._free: dict[Hashable, Kept] = {}  # the longest unused first
        self.nbytes = 0
        """of all that wait"""

    def __len__(self) -> int:
        return len(self._free)

    def borrow(self, family: Hashable, shape: Hashable, make: Callable[[], K]) -> K:
        """The one that waits, or a new one."""
        found = self._taken((family, shape))
        return make() if found is None else found  # type: ignore[return-value]  # it is what `make` made before

    def give_back(self, family: Hashable, shape: Hashable, table: Kept) -> None:
        """Keep it, if it keeps its shape, and let others go as far as there would be too much."""
        if not getattr(table, "steady", False) or table.nbytes > self._most_bytes:
            return
        key = (family, shape)
        self._taken(key)
        self._free[key] = table
        self.nbytes += table.nbytes
        while len(self._free) > self._most or self.nbytes > self._most_bytes:
            self._taken(next(iter(self._free)))

    def _taken(self, key: Hashable) -> Kept | None:
        found = self._free.pop(key, None)
        self.nbytes -= 0 if found is None else found.nbytes
        return found
