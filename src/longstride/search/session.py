"""Sessions of a search: the host's side of it. What changes on the device lies in a table (:mod:`..table`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from longstride.contract import EOS, Finished, Hypothesis, Source, Step
from longstride.engine.pool import PooledSession, PoolKey
from longstride.search.beam import best_first, hypotheses
from longstride.search.beam_table import BeamTable


@dataclass(frozen=True)
class Sentences:
    """Finished sentences; EOS follows the words, and left-overs follow it."""

    tokens: Tensor
    """[rows, columns]"""
    lengths: Tensor
    """[rows] words"""
    steps: Tensor | None = None
    """[rows, columns] the step, from 0, that wrote each token; None: of no interest"""


Finish = Callable[[Tensor, Tensor], Sentences]
"""Words in the order of writing [rows, columns] and how many there are [rows] -> sentences"""


class BeamSession(PooledSession[BeamTable]):
    """`capacity` sentences of several hypotheses; outputs are written whole, when their search ends."""

    @torch.inference_mode()
    def __init__(
        self,
        key: PoolKey,
        make: Callable[[int, int], BeamTable],
        n_best: int,
        step: int,
        finish: Finish,
        eos: int = EOS,
    ) -> None:
        super().__init__(key, make)
        self.portion = self.table.portion
        self._n_best, self._step, self._finish = n_best, step, finish
        self._eos = eos
        # How many slots the live hypotheses of a sentence have filled, known without asking the device.
        self._filled = [0] * self.capacity
        self._done = [True] * self.capacity  # the table's flags, as they were read after the last iteration
        self._outputs: dict[int, list[Hypothesis]] = {}  # by slot, what was found
        self._silence()

    def _silence(self) -> None:
        self._nothing = torch.empty(self.capacity, 0, dtype=torch.int64)
        self._unwritten = self._nothing.bool()
        self._none = torch.zeros(self.capacity, dtype=torch.int64)
        self._silent: Step | None = None  # an iteration that ends no search: the same each time where its tensors are

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Encode new sentences and open a search for each."""
        empty, tickets = self._slots.take(source.rows)
        for slot in empty:
            self._filled[slot], self._done[slot] = 0, False
        self.calls += self.table.admit(source, empty, tickets)
        return tickets

    @torch.inference_mode()
    def advance(self) -> Step:
        """A step of every live hypothesis. Reads the flags of all slots: most iterations then need write nothing."""
        held = zip(self._filled, self._slots.held, strict=True)
        filled = max((filled for filled, ticket in held if ticket is not None), default=0)
        active = self.table.step(self._step + filled)
        calls = self.table.calls
        self.calls += calls
        self._filled = [filled + self._step for filled in self._filled]
        before, self._done = self._done, self.table.done()
        ended = [slot for slot, (was, now) in enumerate(zip(before, self._done, strict=True)) if now and not was]
        if ended:
            return self._closing(ended, active, calls)
        if self._silent is None or self._silent.active is not active or self._silent.calls != calls:
            nothing, none = self._nothing, self._none
            ticket, unwritten = self.table.ticket, self._unwritten
            self._silent = Step(ticket, active, nothing, nothing, unwritten, none, none, calls=calls)
        return self._silent

    def _closing(self, ended: list[int], active: Tensor, calls: int) -> Step:
        """The iteration in which the searches of these slots have ended: their best outputs are written."""
        table, columns = self.table, self.table.columns
        # By numpy: for so few numbers PyTorch takes longer to ask than to do it.
        found = best_first(self._n_best, *(tensor.numpy()[ended] for tensor in table.finished()))
        scores, totals, lengths, words = found
        sentences = self._finish(torch.from_numpy(words.reshape(-1, columns)), torch.from_numpy(lengths.reshape(-1)))
        tokens, kept = sentences.tokens.numpy().reshape(words.shape), sentences.lengths.numpy().reshape(lengths.shape)
        self._outputs |= zip(ended, hypotheses(tokens, kept, scores, totals), strict=True)
        shape = (self.capacity, columns)
        ids, when = np.full(shape, self._eos), np.zeros(shape, dtype=np.int64)
        written, every = np.zeros(shape, dtype=np.bool_), np.arange(columns)
        first, length = tokens[:, 0], kept[:, :1]
        ids[ended] = np.where(every < length, first, self._eos)
        written[ended] = every <= length
        if sentences.steps is not None:
            when[ended] = sentences.steps.numpy().reshape(words.shape)[:, 0]
        position = np.broadcast_to(every, shape).copy()
        return Step(
            table.ticket,
            active,
            torch.from_numpy(position),
            torch.from_numpy(ids),
            torch.from_numpy(written),
            self._none,
            self._none,
            calls=calls,
            when=None if sentences.steps is None else torch.from_numpy(when),
        )

    def cancel(self, ticket: int) -> None:
        """Its slot idles until another sentence takes it; what its search may have found is forgotten."""
        slot = self._slots.slot_of(ticket)
        super().cancel(ticket)
        self._done[slot] = True
        self._outputs.pop(slot, None)

    def take_finished(self) -> list[Finished]:
        """What the searches have found that are done."""
        if True not in self._done:
            return []
        ready = self._slots.ready(self._done)
        return [Finished(self._slots.release(slot), self._outputs.pop(slot)) for slot in ready]

    @torch.inference_mode()
    def settle(self) -> None:
        """Drop empty slots once half of the table is empty, so that finished sentences stop costing."""
        kept = self._slots.thinned()
        if self.table.steady or not kept:
            return
        self.table.keep(torch.tensor(kept, device=self._runner.device))
        self._slots.keep(kept)
        self._filled = [self._filled[slot] for slot in kept]
        self._done = [self._done[slot] for slot in kept]
        self._outputs = {kept.index(slot): found for slot, found in self._outputs.items() if slot in kept}
        self.capacity = len(kept)
        self._silence()
