"""The table of lattice decoding: sentences are encoded when they are admitted and done when the table next advances.

Where a runner records, sentences are encoded and done by recordings when the table advances. A sentence is done in one
iteration, so an iteration waits for its outputs: the table itself lies on the host, and nothing but sentences
and outputs travels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import Finished, Hypothesis, Runner, Session, Source, Step
from longstride.contract.slots import Slots
from longstride.search.beam import DEAD
from longstride.systems.lattice.pipeline import Pipeline, Sentences
from longstride.systems.lattice.portions import Portion, portions
from longstride.systems.lattice.recorded import decode_recorded
from longstride.systems.lattice.scoring import Encoded


@dataclass(frozen=True)
class _Waiting:
    """Sentences that were admitted together, encoded and not searched yet."""

    slots: list[int]
    sentences: Sentences
    encoded: Encoded


class LatticeSession(Session):
    """`capacity` sentences; one iteration makes all of an output."""

    def __init__(self, pipeline: Pipeline, runner: Runner, capacity: int) -> None:
        self.capacity = capacity
        self.calls = 0
        self._pipeline = pipeline
        self._runner = runner
        self._slots = Slots(capacity)
        self._waiting: list[_Waiting] = []
        self._portions: list[tuple[list[int], Portion]] = []
        """for recordings, with their slots"""
        self._done: dict[int, list[Hypothesis]] = {}
        """by slot: what was found and not taken yet"""

    @property
    def free(self) -> int:
        """How many slots are empty."""
        return self._slots.free

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Encode new sentences together, or leave that to the recording."""
        slots, tickets = self._slots.take(source.rows)
        if self._runner.records:
            found = portions(self._pipeline, self._runner, source)
            self._portions += [([slots[row] for row in one.rows], one) for one in found]
        else:
            sentences = self._pipeline.read(source)
            self._waiting.append(_Waiting(slots, sentences, self._pipeline.encode(sentences)))
        self.calls += 1
        return tickets

    @torch.inference_mode()
    def advance(self) -> Step:
        """Build, score and search the lattices of all sentences that wait."""
        outputs = []
        if self._portions:
            groups = [(portion.source, portion.shape) for _, portion in self._portions]
            found = decode_recorded(self._pipeline, self._runner, groups)
            outputs = list(zip([slots for slots, _ in self._portions], found, strict=True))
        outputs += self._searched()
        self._portions, self._waiting = [], []
        self.calls += len(outputs)
        return self._step(outputs)

    def _searched(self) -> list[tuple[list[int], Tensor]]:
        """The outputs of sentences that were encoded before, in portions; the host waits once for all of them."""
        places, found = [], []
        for group in self._waiting:
            portion = self._pipeline.rows_at_once(group.sentences.ids.shape[1], group.sentences.columns)
            for first in range(0, group.sentences.rows, portion):
                last = first + portion
                places.append(group.slots[first:last])
                some, encoded = group.sentences.slice(first, last), group.encoded.slice(first, last)
                found.append(self._pipeline.outputs(some, encoded))
        return list(zip(places, self._runner.fetch(*found), strict=True)) if found else []

    def _step(self, outputs: list[tuple[list[int], Tensor]]) -> Step:
        """What happened in which slot; outputs [rows, n, 3 + columns] on the host, as `pipeline.packed` has them."""
        for slots, found in outputs:
            for slot, numbers, figures in zip(slots, found.tolist(), figures_of(found), strict=True):
                self._done[slot] = [
                    Hypothesis(one[3 : 2 + one[0]], score, total)
                    for one, (score, total) in zip(numbers, figures, strict=True)
                    if score > DEAD
                ]
        best = _in_slots([(slots, found[:, 0]) for slots, found in outputs], self.capacity)
        length, ids = best[:, 0], best[:, 3:]
        columns = torch.arange(ids.shape[1])
        ticket = torch.tensor([-1 if held is None else held for held in self._slots.held])
        none = torch.zeros(self.capacity, dtype=torch.int64)
        written = columns < length[:, None]
        return Step(ticket, length > 0, columns.expand_as(ids), ids, written, none, none, calls=len(outputs))

    def take_finished(self) -> list[Finished]:
        """The outputs of the slots that were searched."""
        found = [Finished(self._slots.release(slot), self._done[slot]) for slot in sorted(self._done)]
        self._done = {}
        return found


def figures_of(found: Tensor) -> list[list[list[float]]]:
    """Score and log-probability of every output [rows, n, 3 + columns]."""
    figures: list[list[list[float]]] = found.view(torch.float64)[..., 1:3].tolist()
    return figures


def _in_slots(outputs: list[tuple[list[int], Tensor]], capacity: int) -> Tensor:
    """Best outputs [rows, 3 + columns] of some slots each -> [capacity, 3 + columns of the longest], 0 elsewhere."""
    if len(outputs) == 1 and outputs[0][0] == list(range(capacity)):  # all of them, and in order
        return outputs[0][1]
    every = torch.zeros(capacity, max((found.shape[1] for _, found in outputs), default=3), dtype=torch.int64)
    for slots, found in outputs:
        every[slots, : found.shape[1]] = found
    return every
