"""Sessions of decoders that write whole outputs in one step: sentences are admitted, and done at the next step.

A step waits for its outputs, so all that a session keeps lies on the host. Outputs travel as one tensor of whole
numbers: the length (EOS counted), score and log-probability (the bits of a float64 each), then ids.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Generic, TypeVar

import torch
from torch import Tensor

from longstride.contract import Finished, Hypothesis, Runner, Session, Source, Step
from longstride.engine.slots import Slots

P = TypeVar("P")
"""What a decoder makes of the sentences that go through one step together."""


def pack(lengths: Tensor, scores: Tensor, log_probabilities: Tensor, ids: Tensor) -> Tensor:
    """[..., 3 + columns] int64 of outputs with these ids [..., columns]; everything else is [...]."""
    numbers = torch.stack([scores.double(), log_probabilities.double()], dim=-1).view(torch.int64)
    return torch.cat([lengths[..., None], numbers, ids], dim=-1)


class OneStepSession(Session, Generic[P]):
    """`capacity` sentences; one step makes all of an output."""

    step_calls = 1
    """Model calls that each portion of a step makes."""

    def __init__(self, runner: Runner, capacity: int) -> None:
        self.capacity = capacity
        self.calls = 0
        self._runner = runner
        self._slots = Slots(capacity)
        self._waiting: list[tuple[list[int | None], P]] = []  # None: of a sentence that was given up
        self._done: dict[int, list[Hypothesis]] = {}

    @abstractmethod
    def prepare(self, source: Source) -> list[tuple[list[int], P]]:
        """Portions of new sentences: which rows of the source each holds, and what :meth:`decode` needs of them."""

    @abstractmethod
    def decode(self, portions: list[P]) -> list[Tensor]:
        """The outputs of each portion, [rows or more, n, 3 + columns] as :func:`pack` makes them, on the host."""

    @property
    def free(self) -> int:
        """How many slots are empty."""
        return self._slots.free

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Prepare new sentences together, which counts as one call whatever portions they go in."""
        slots, tickets = self._slots.take(source.rows)
        self._waiting += [([slots[row] for row in rows], portion) for rows, portion in self.prepare(source)]
        self.calls += 1
        return tickets

    @torch.inference_mode()
    def advance(self) -> Step:
        """Decode all sentences that wait; the host waits once for all of them."""
        waiting, self._waiting = self._waiting, []
        found = self.decode([portion for _, portion in waiting]) if waiting else []
        outputs = [_wanted(slots, one) for (slots, _), one in zip(waiting, found, strict=True)]
        for slots, packed in outputs:
            figures = packed.view(torch.float64)[..., 1:3].tolist()
            for slot, numbers, pairs in zip(slots, packed.tolist(), figures, strict=True):
                self._done[slot] = [
                    Hypothesis(one[3 : 2 + one[0]], score, total)
                    for one, (score, total) in zip(numbers, pairs, strict=True)
                    if not score <= -math.inf
                ]
        calls = self.step_calls * len(outputs)
        self.calls += calls
        return self._step([(slots, packed[:, 0]) for slots, packed in outputs], calls)

    def _step(self, outputs: list[tuple[list[int], Tensor]], calls: int) -> Step:
        """The best outputs [rows, 3 + columns] of some slots each as writes of all slots."""
        if len(outputs) == 1 and outputs[0][0] == list(range(self.capacity)):  # all of them, and in order
            best = outputs[0][1]
        else:
            columns = max((packed.shape[1] for _, packed in outputs), default=3)
            best = torch.zeros(self.capacity, columns, dtype=torch.int64)
            for slots, packed in outputs:
                best[slots, : packed.shape[1]] = packed
        length, ids = best[:, 0], best[:, 3:]
        positions = torch.arange(ids.shape[1])
        ticket = torch.tensor([-1 if held is None else held for held in self._slots.held])
        none = torch.zeros(self.capacity, dtype=torch.int64)
        written = positions < length[:, None]
        return Step(ticket, length > 0, positions.expand_as(ids), ids, written, none, none, calls=calls)

    def cancel(self, ticket: int) -> None:
        """Its portion is decoded without it, if anything of it is left; what was found is forgotten."""
        slot = self._slots.slot_of(ticket)
        self._slots.release(slot)
        self._done.pop(slot, None)
        waiting = [([None if held == slot else held for held in slots], portion) for slots, portion in self._waiting]
        self._waiting = [(slots, portion) for slots, portion in waiting if slots.count(None) < len(slots)]

    def take_finished(self) -> list[Finished]:
        """The outputs of the last steps."""
        found = [Finished(self._slots.release(slot), self._done[slot]) for slot in sorted(self._done)]
        self._done = {}
        return found


def _wanted(slots: list[int | None], packed: Tensor) -> tuple[list[int], Tensor]:
    """The slots whose sentences are still there, and their outputs; the last ones may be of no sentence at all."""
    rows = [row for row, slot in enumerate(slots) if slot is not None]
    left = [slot for slot in slots if slot is not None]
    return left, packed[: len(slots)] if len(left) == len(slots) else packed[rows]
