"""Which sentence stands in which slot, as the host knows it without asking the device."""

from __future__ import annotations

from collections.abc import Sequence


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
