"""The table of lattice decoding: sentences are encoded when they are admitted and done when the table next advances."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import EOS, PAD, Finished, Hypothesis, Limits, Runner, Session, Source, Step
from longstride.contract.slots import Slots
from longstride.systems.lattice.pipeline import Pipeline, Sentences, emitted
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
        self._device = device = runner.device
        columns = int(limits.longest_outputs(torch.tensor(longest_source))) + 1
        self._tokens = torch.full((capacity, n_best, columns), PAD, dtype=torch.int64, device=device)
        self._lengths = torch.zeros(capacity, n_best, dtype=torch.int64, device=device)
        self._scores = torch.full((capacity, n_best), -torch.inf, dtype=torch.float64, device=device)
        self._ticket = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        self._slots = Slots(capacity)
        self._waiting: list[_Waiting] = []
        self._done = [False] * capacity

    @property
    def free(self) -> int:
        """How many slots are empty."""
        return self._slots.free

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Encode new sentences together."""
        slots, tickets = self._slots.take(source.rows)
        sentences = self._pipeline.read(source)
        self._waiting.append(_Waiting(slots, sentences, self._pipeline.encode(sentences)))
        self.calls += 1
        self._ticket[torch.tensor(slots, device=self._device)] = torch.tensor(tickets, device=self._device)
        return tickets

    @torch.inference_mode()
    def advance(self) -> Step:
        """Build, score and search the lattices of all sentences that wait."""
        calls = 0
        active = [False] * self.capacity
        for group in self._waiting:
            for slot in group.slots:
                active[slot] = self._done[slot] = True
            portion = self._pipeline.rows_at_once(group.sentences)
            for first in range(0, group.sentences.rows, portion):
                last = first + portion
                self._decode(
                    group.slots[first:last], group.sentences.slice(first, last), group.encoded.slice(first, last)
                )
                calls += 1
        self._waiting = []
        self.calls += calls
        return self._step(torch.tensor(active, device=self._device), calls)

    def _decode(self, slots: list[int], sentences: Sentences, encoded: Encoded) -> None:
        candidates = self._pipeline.candidates(sentences, encoded)
        lattice = self._pipeline.score(sentences, encoded, candidates)
        paths = self._pipeline.search(lattice)
        ids, lengths = emitted(lattice, paths)
        rows = torch.tensor(slots, device=self._device)
        self._tokens[rows] = torch.nn.functional.pad(ids, (0, self._tokens.shape[2] - ids.shape[2]), value=PAD)
        self._lengths[rows] = lengths
        self._scores[rows] = paths.scores.double()

    def _step(self, active: Tensor, calls: int) -> Step:
        """The best output of each slot, written whole."""
        ids = self._tokens[:, 0]
        columns = torch.arange(ids.shape[1], device=ids.device)
        written = (columns < self._lengths[:, :1]) & active[:, None]
        none = torch.zeros_like(self._ticket)
        shown = torch.where(written, ids, EOS)
        return Step(self._ticket, active, columns.expand_as(ids), shown, written, none, none, calls=calls)

    @torch.inference_mode()
    def take_finished(self) -> list[Finished]:
        """Read back the outputs of the slots that were searched; which these are the host knows."""
        ready = self._slots.ready(self._done)
        if not ready:
            return []
        index = torch.tensor(ready, device=self._device)
        tokens, lengths = self._tokens[index].tolist(), self._lengths[index].tolist()
        scores = self._scores[index].tolist()
        taken = []
        for row, slot in enumerate(ready):
            found = zip(tokens[row], lengths[row], scores[row], strict=True)
            hypotheses = [
                Hypothesis(ids[: length - 1], score, score) for ids, length, score in found if score > -float("inf")
            ]
            self._done[slot] = False
            taken.append(Finished(self._slots.release(slot), hypotheses))
        return taken
