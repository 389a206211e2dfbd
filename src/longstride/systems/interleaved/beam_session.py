"""The multi-word beam: the host's side of it. What changes lies in a table (`beam_table`)."""

from __future__ import annotations

from functools import partial

import torch

from longstride.contract import Finished, Limits, Source, Step
from longstride.search.ranking import best_first, hypotheses
from longstride.systems.interleaved.beam_table import BeamTable
from longstride.systems.interleaved.model import InterleavedModel
from longstride.systems.interleaved.sentences import sentences_of, silent_step
from longstride.systems.interleaved.table import Search
from longstride.verification.lease import Lease, LeasedSession


class BeamSession(LeasedSession[BeamTable]):
    """`capacity` sentences of several hypotheses."""

    @torch.inference_mode()
    def __init__(self, lease: Lease, model: InterleavedModel, search: Search, limits: Limits) -> None:
        super().__init__(lease, partial(BeamTable, model, lease.runner, search, limits))
        # How many slots the live hypotheses of a sentence have filled, known without asking the device.
        self._filled = [0] * self.capacity
        self._done = [True] * self.capacity  # the table's flags, as they were read after the last iteration

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Encode new sentences and open a search for each."""
        empty, tickets = self._slots.take(source.rows)
        for slot in empty:
            self._filled[slot] = 0
            self._done[slot] = False
        self.calls += self.table.admit(source, empty, tickets)
        return tickets

    @torch.inference_mode()
    def advance(self) -> Step:
        """A step of every live hypothesis. Reads the flags of all slots: most iterations then need write nothing."""
        table, step = self.table, self.table.options.step
        held = zip(self._filled, self._slots.held, strict=True)
        active = table.step(step + max((filled for filled, ticket in held if ticket is not None), default=0))
        self.calls += 1
        self._filled = [filled + step for filled in self._filled]
        before, self._done = self._done, self._runner.fetch(table.hypotheses.done)[0].tolist()
        return silent_step(table.ticket, active) if before == self._done else table.closing(active)

    @torch.inference_mode()
    def take_finished(self) -> list[Finished]:
        """Read the hypotheses of the sentences that are done."""
        ready = self._slots.ready(self._done)
        if not ready:
            return []
        table, search, every = self.table, self.table.search, self.table.hypotheses
        fetched = self._runner.fetch(
            every.scores(search.penalty), every.finished, every.finished_words, every.finished_length
        )
        scores, totals, words, lengths = best_first(search.n_best, *(tensor[ready] for tensor in fetched))
        found = sentences_of(words.view(-1, table.columns), lengths.view(-1), table.options, search.dedup)
        outputs, kept = found.tokens.view(words.shape), found.lengths.view(lengths.shape)
        told = zip(ready, hypotheses(outputs, kept, scores, totals), strict=True)
        return [Finished(self._slots.release(slot), some) for slot, some in told]

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
        self.capacity = len(kept)
