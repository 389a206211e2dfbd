"""Tables on loan, and the sentences in them.

A session asks its runner for a table that an earlier session has left, keeps book of which sentence stands in which
slot, and leaves it to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from longstride.contract import PAD, Runner, Session, Source
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
    def ready(self) -> bool:
        """Whether one can be had without recording anything."""
        return self.runner.ready(self.family, self._shape)

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

    @property
    def used(self) -> list[int]:
        """The slots with a sentence in them."""
        return [slot for slot, ticket in enumerate(self.held) if ticket is not None]

    def thinned(self) -> list[int]:
        """The slots in use once they are half of all or fewer, for a table that can drop the others; else none."""
        used = self.used
        return used if len(used) * 2 <= len(self.held) else []

    def keep(self, slots: Sequence[int], capacity: int = 0) -> None:
        """Drop all slots but these, which come first from now on, and have so many in all, or just these."""
        held = [self.held[slot] for slot in slots]
        self.held = held + [None] * (capacity - len(held))

    def hold(self, tickets: Sequence[int], upcoming: int) -> None:
        """Begin with sentences that got their tickets elsewhere; the next one gets the ticket `upcoming`."""
        self.held[: len(tickets)] = tickets
        self._next = upcoming


# --- new sentences on their way into a table: one small copy to the device brings all that is known of them -----------


NUMBERS = 4
"""Beside the ids of a sentence: its length, its row, its ticket and where its random numbers come from."""


FEW = 8
"""More sentences than this are faster written as arrays than one by one."""


class InputStaging:
    """A portion of sentences, in a tensor that never moves; places that are not needed repeat the first one, in the
    same row, so that all of it may be admitted.

    With `longest_draft`, each sentence's draft comes along, cut to so many tokens."""

    def __init__(
        self, portion: int, longest_source: int, runner: Runner, longest_draft: int = 0, unused_row: int | None = None
    ) -> None:
        """`unused_row` is the row of places that are not needed, if these are not to repeat the first sentence."""
        self.portion, self._unused_row = portion, unused_row
        self._longest, self._longest_draft = longest_source, longest_draft
        self._device = runner.device
        shape = (portion, longest_source + NUMBERS + (longest_draft + 1 if longest_draft else 0))
        on_cuda = runner.device.type == "cuda"
        with torch.inference_mode(False):  # so that sending need not enter it
            self._all = torch.zeros(shape, dtype=torch.int64, device=runner.device)
            self._all[:, longest_source] = 1
            # Made once: memory that a device can read is dear to come by.
            self._desk = torch.zeros(shape, dtype=torch.int64, pin_memory=True) if on_cuda else self._all
        self._numbers = self._desk.numpy()
        self._sent = torch.cuda.Event() if on_cuda else None  # type: ignore[no-untyped-call]

    def send(self, source: Source, rows: list[int], tickets: list[int], streams: list[int] | None = None) -> None:
        """Bring up to a portion of sentences, the rows that they are meant for and their tickets; `streams` of random
        numbers where something is drawn."""
        count, longest = source.rows, self._longest
        if self._sent is not None:
            self._sent.synchronize()  # what lies on the desk may still be on its way
        numbers, padding = self._numbers, [PAD] * (longest - source.longest)
        told = (rows, tickets, streams or tickets)
        if count > FEW:
            numbers[:count, : source.longest] = source.ids.numpy()
            numbers[:count, source.longest : longest] = PAD
            numbers[:count, longest] = source.lengths.numpy()
            numbers[:count, longest + 1 : longest + NUMBERS] = np.transpose(told)
            numbers[:count, longest + NUMBERS :] = self._drafts(source)
        else:
            # As lists: for the few sentences that come at once, tensors and arrays take longer to ask than to read.
            each = zip(source.ids.tolist(), source.lengths.tolist(), *told, self._drafts(source), strict=True)
            for place, (ids, length, row, ticket, stream, draft) in enumerate(each):
                numbers[place] = [*ids, *padding, length, row, ticket, stream, *draft]
        if count < self.portion:
            numbers[count:] = numbers[0]
            if self._unused_row is not None:
                numbers[count:, longest + 1] = self._unused_row
        if self._sent is not None:
            self._all.copy_(self._desk, non_blocking=True)
            self._sent.record(torch.cuda.current_stream(self._device))

    def _drafts(self, source: Source) -> list[list[int]]:
        """Of each sentence, the numbers that tell its draft: how many tokens, and these, padded."""
        longest = self._longest_draft
        if not longest or source.drafts is None:
            return [[0] * (longest + 1 if longest else 0)] * source.rows
        ids, lengths = source.drafts.ids[:, :longest].tolist(), source.drafts.lengths.clamp(max=longest).tolist()
        return [
            [length, *tokens, *([PAD] * (longest - len(tokens)))] for length, tokens in zip(lengths, ids, strict=True)
        ]

    def source(self, count: int) -> Source:
        """The first `count` sentences, with their drafts where these are brought along."""
        found = self._all[:count, self._longest + NUMBERS :]
        drafts = Source(found[:, 1:], found[:, 0]) if self._longest_draft else None
        return Source(self.ids[:count], self.lengths[:count], drafts=drafts)

    @property
    def ids(self) -> Tensor:
        """[portion, longest source]"""
        return self._all[:, : self._longest]

    @property
    def lengths(self) -> Tensor:
        """[portion]"""
        return self._all[:, self._longest]

    @property
    def rows(self) -> Tensor:
        """[portion]"""
        return self._all[:, self._longest + 1]

    @property
    def tickets(self) -> Tensor:
        """[portion]"""
        return self._all[:, self._longest + 2]

    @property
    def streams(self) -> Tensor:
        """[portion]"""
        return self._all[:, self._longest + 3]


class Admission:
    """The way of sentences into a table of searches: in equal portions where the runner records, else together."""

    def __init__(
        self,
        runner: Runner,
        capacity: int,
        longest_source: int,
        enter: Callable[[InputStaging, int], None],
        buffers: Callable[[], list[Tensor]],
    ) -> None:
        """`enter` takes in so many of the staging; `buffers` are the tensors that it writes."""
        self._runner = runner
        self._enter = enter
        self._buffers = buffers
        self._staging = InputStaging(max(1, capacity // 4), longest_source, runner) if runner.records else None
        self._recorded: Callable[[], None] | None = None

    @property
    def portion(self) -> int:
        """Sentences that are let in together where they are recorded; else 1."""
        return 1 if self._staging is None else self._staging.portion

    @property
    def recordings(self) -> int:
        """How many portions were recorded: one or none."""
        return int(self._recorded is not None)

    def admit(self, source: Source, slots: list[int], tickets: list[int]) -> int:
        """Let new sentences in; how many portions they made."""
        staging = self._staging
        if staging is None:
            # Together, in a rectangle of their own: nothing is recorded, and none of it is wasted.
            staging = InputStaging(source.rows, source.longest, self._runner)
            staging.send(source, slots, tickets)
            self._enter(staging, source.rows)
            return 1
        for first in range(0, source.rows, staging.portion):
            last = min(first + staging.portion, source.rows)
            staging.send(source.slice(first, last), slots[first:last], tickets[first:last])
            if last - first < staging.portion:
                self._enter(staging, last - first)
                continue
            if self._recorded is None:
                enter = partial(self._enter, staging, staging.portion)
                self._recorded = self._runner.record("enter", enter, self._buffers())
            self._recorded()
        return -(-source.rows // staging.portion)
