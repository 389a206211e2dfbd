"""Beam search over a table of slots: `width` hypotheses a sentence, one model or several averaged.

The host's side of it: which sentence stands in which slot, how long its hypotheses are by now, and what came out. All
else is on the device (:mod:`longstride.systems.autoregressive.beam_rows`), or in plain numbers where a single sentence
is searched on a processor (:mod:`longstride.systems.autoregressive.lone_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from longstride.contract import Finished, Limits, Runner, Source, Step
from longstride.nn.transformer import Transformer
from longstride.search.length_penalty import LengthPenalty
from longstride.systems.autoregressive.beam_rows import BeamRows, Search
from longstride.systems.autoregressive.lone_rows import LoneRows, alone
from longstride.verification.lease import Lease, LeasedSession


class BeamSession(LeasedSession[BeamRows | LoneRows]):
    """`capacity` sentences of `width` hypotheses."""

    @torch.inference_mode()
    def __init__(
        self,
        models: Sequence[Transformer],
        runner: Runner,
        width: int,
        penalty: LengthPenalty,
        n_best: int,
        capacity: int,
        limits: Limits,
        longest_source: int,
    ) -> None:
        search = Search(width, penalty, n_best)
        positions = min(model.options.longest for model in models)
        family = ("beam", tuple(models), search, limits)
        lease = Lease.of(runner, family, capacity, longest_source, positions)
        table = LoneRows if alone(runner, lease.capacity) else BeamRows
        super().__init__(lease, partial(table, models, runner, search, limits))
        self._models = len(models)
        # How many tokens the live hypotheses of a slot have, known without asking the device.
        self._age = [0] * self.capacity

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Encode new sentences and open a search for each."""
        empty, tickets = self._slots.take(source.rows)
        for slot in empty:
            self._age[slot] = 0
        self.calls += self.table.admit(source, empty, tickets)
        return tickets

    @torch.inference_mode()
    def advance(self) -> Step:
        """One token for every live hypothesis."""
        held = zip(self._age, self._slots.held, strict=True)
        found = self.table.step(1 + max((age for age, ticket in held if ticket is not None), default=0))
        self.calls += self._models
        self._age = [age + 1 for age in self._age]
        ticket = self.table.ticket
        none = torch.zeros_like(ticket)
        return Step(ticket, found.active, found.positions, found.ids, found.written, none, none, calls=self._models)

    @torch.inference_mode()
    def take_finished(self) -> list[Finished]:
        """Read the flags of all slots, and the hypotheses of those that are done."""
        ready = self._slots.ready(self.table.done())
        if not ready:
            return []
        every = zip(ready, self.table.outputs(ready), strict=True)
        return [Finished(self._slots.release(slot), told) for slot, told in every]

    @torch.inference_mode()
    def settle(self) -> None:
        """Drop empty slots once half of the table is empty, so that finished sentences stop costing."""
        kept = self._slots.thinned()
        if self.table.steady or not kept:
            return
        self.table.keep(torch.tensor(kept, device=self._runner.device))
        self._slots.keep(kept)
        self._age = [self._age[slot] for slot in kept]
        self.capacity = len(kept)
