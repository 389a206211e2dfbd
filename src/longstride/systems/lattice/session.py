"""The table of lattice decoding: sentences are encoded when they are admitted and done when the table next advances.

Where a runner records, small groups are encoded and done in one recording when the table advances.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import Finished, Limits, Runner, Session, Source, Step
from longstride.contract.slots import Slots
from longstride.search.ranking import hypotheses
from longstride.systems.lattice.pipeline import Pipeline, Sentences
from longstride.systems.lattice.recorded import decode_recorded, records
from longstride.systems.lattice.scoring import Encoded


@dataclass(frozen=True)
class _Waiting:
    """Sentences that were admitted together, encoded and not searched yet."""

    slots: list[int]
    sentences: Sentences
    encoded: Encoded


class LatticeSession(Session):
    """`capacity` sentences; one iteration makes all of an output."""

    @torch.inference_mode()
    def __init__(
        self, pipeline: Pipeline, runner: Runner, n_best: int, capacity: int, limits: Limits, longest_source: int
    ) -> None:
        self.capacity = capacity
        self.calls = 0
        self._pipeline = pipeline
        self._runner = runner
        device = runner.device
        columns = int(limits.longest_outputs(torch.tensor(longest_source))) + 1
        # Length, scores and ids of each slot's outputs, as `packed` has them: one tensor to write and to read back.
        self._found = torch.zeros(capacity, n_best, 3 + columns, dtype=torch.int64, device=device)
        self._ticket = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        self._active = torch.zeros(capacity, dtype=torch.bool, device=device)
        self._none = torch.zeros(capacity, dtype=torch.int64, device=device)
        self._columns = torch.arange(columns, device=device)
        self._slots = Slots(capacity)
        self._waiting: list[_Waiting] = []
        self._few: list[tuple[list[int], Source]] = []
        self._done = [False] * capacity

    @property
    def free(self) -> int:
        """How many slots are empty."""
        return self._slots.free

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Encode new sentences together, or leave that to the recording."""
        slots, tickets = self._slots.take(source.rows)
        if self._runner.records and records(self._pipeline, self._runner, source):
            self._few.append((slots, source))
        else:
            sentences = self._pipeline.read(source)
            self._waiting.append(_Waiting(slots, sentences, self._pipeline.encode(sentences)))
        self.calls += 1
        self._write(self._ticket, slots, torch.tensor(tickets))
        return tickets

    @torch.inference_mode()
    def advance(self) -> Step:
        """Build, score and search the lattices of all sentences that wait."""
        calls = 0
        active = torch.zeros(self.capacity, dtype=torch.bool)
        for slots, source in self._few:
            active[slots] = True
            self._keep(slots, decode_recorded(self._pipeline, self._runner, source))
            calls += 1
        for group in self._waiting:
            active[group.slots] = True
            portion = self._pipeline.rows_at_once(group.sentences.ids.shape[1], group.sentences.columns)
            for first in range(0, group.sentences.rows, portion):
                last = first + portion
                self._decode(
                    group.slots[first:last], group.sentences.slice(first, last), group.encoded.slice(first, last)
                )
                calls += 1
        self._waiting, self._few = [], []
        self._done = [one or other for one, other in zip(self._done, active.tolist(), strict=True)]
        self.calls += calls
        self._runner.send(active, self._active)
        written = (self._columns < self._found[:, 0, :1]) & self._active[:, None]
        ids = self._found[:, 0, 3:]
        columns = self._columns.expand_as(ids)
        return Step(self._ticket, self._active, columns, ids, written, self._none, self._none, calls=calls)

    def _decode(self, slots: list[int], sentences: Sentences, encoded: Encoded) -> None:
        self._keep(slots, self._pipeline.outputs(sentences, encoded))

    def _keep(self, slots: list[int], found: Tensor) -> None:
        """Outputs [rows, n, 3 + columns] into the table, whose width may differ; what lies past a length is void."""
        width = min(found.shape[2], self._found.shape[2])
        self._write(self._found[..., :width], slots, found[..., :width])

    def _write(self, table: Tensor, slots: list[int], values: Tensor) -> None:
        """Into these rows of a table; neighbours, which they nearly always are, without an index to send."""
        first, last = slots[0], slots[-1] + 1
        if slots == list(range(first, last)):
            place = table[first:last]
            place.copy_(values) if values.device == table.device else self._runner.send(values, place)
        else:
            table[torch.tensor(slots, device=table.device)] = values.to(table.device)

    @torch.inference_mode()
    def take_finished(self) -> list[Finished]:
        """Read back the outputs of the slots that were searched; which these are the host knows."""
        ready = self._slots.ready(self._done)
        if not ready:
            return []
        found = self._runner.fetch(self._found)[0][ready]
        words = found[..., 0] - 1
        scores, totals = found[..., 1:3].contiguous().view(torch.float64).unbind(dim=-1)
        every = hypotheses(found[..., 3 : 3 + int(words.max())], words, scores, totals)
        for slot in ready:
            self._done[slot] = False
        return [Finished(self._slots.release(slot), told) for slot, told in zip(ready, every, strict=True)]
