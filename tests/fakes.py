"""A decoder without a model, so that what stands around decoders can be tested alone."""

from __future__ import annotations

import torch

from longstride.contract.decoding import Decoder, Finished, Hypothesis, Limits, Session, Source, Step
from longstride.contract.symbols import EOS


class CopyDecoder(Decoder):
    """Outputs each source sentence as it is, one token per iteration, within the limits."""

    name = "copy"

    @property
    def signature(self) -> str:
        """Always the same: there is nothing to set."""
        return "copy|fake"

    def start(self, capacity: int, limits: Limits, longest_source: int) -> Session:
        """An empty table."""
        return _CopySession(capacity, limits)


class _CopySession(Session):
    def __init__(self, capacity: int, limits: Limits) -> None:
        self.capacity = capacity
        self.calls = 0
        self._limits = limits
        self._slots: list[tuple[int, list[int], int] | None] = [None] * capacity  # ticket, output with EOS, next
        self._tickets = 0

    @property
    def free(self) -> int:
        return sum(slot is None for slot in self._slots)

    def admit(self, source: Source) -> list[int]:
        tickets = []
        longest = self._limits.longest_outputs(source.lengths).tolist()
        for row in range(source.rows):
            slot = self._slots.index(None)
            tokens = source.ids[row, : int(source.lengths[row]) - 1].tolist()[: longest[row]]
            self._slots[slot] = (self._tickets, [*tokens, EOS], 0)
            tickets.append(self._tickets)
            self._tickets += 1
        self.calls += 1
        return tickets

    def advance(self) -> Step:
        self.calls += 1
        ticket = torch.zeros(self.capacity, dtype=torch.int64)
        position = torch.zeros(self.capacity, 1, dtype=torch.int64)
        ids = torch.zeros(self.capacity, 1, dtype=torch.int64)
        active = torch.zeros(self.capacity, dtype=torch.bool)
        for index, slot in enumerate(self._slots):
            if slot is not None and slot[2] < len(slot[1]):
                ticket[index], position[index], ids[index], active[index] = slot[0], slot[2], slot[1][slot[2]], True
                self._slots[index] = (slot[0], slot[1], slot[2] + 1)
        none = torch.zeros(self.capacity, dtype=torch.int64)
        return Step(ticket, active, position, ids, active[:, None], none, none)

    def take_finished(self) -> list[Finished]:
        done = []
        for index, slot in enumerate(self._slots):
            if slot is not None and slot[2] == len(slot[1]):
                done.append(Finished(slot[0], [Hypothesis(slot[1][:-1], 0.0, 0.0)]))
                self._slots[index] = None
        return done

    def cancel(self, ticket: int) -> None:
        self._slots = [None if slot is not None and slot[0] == ticket else slot for slot in self._slots]
