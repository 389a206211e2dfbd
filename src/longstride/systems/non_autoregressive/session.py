"""The table of one-pass decoding: sentences are encoded when they are admitted and filled when the table next advances.

Which lengths are tried is settled on the host, from source lengths alone, so that nothing waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import (
    EOS,
    NEVER_GENERATED,
    Finished,
    Hypothesis,
    Limits,
    OptionError,
    Runner,
    Session,
    Source,
    Step,
)
from longstride.contract.slots import Slots
from longstride.search.lengths import Window
from longstride.systems.non_autoregressive import programs
from longstride.systems.non_autoregressive.filling import Encoded, Filled
from longstride.systems.non_autoregressive.model import OnePass

AT_ONCE = 1 << 28
"""Numbers that the widest tensor of a pass may hold; more sentences go in several passes."""


@dataclass(frozen=True)
class _Waiting:
    """Sentences that were admitted together, encoded and not filled yet."""

    slots: list[int]
    encoded: Encoded
    lengths: Tensor
    """[sentences, n] to be tried"""
    odds: Tensor
    """[sentences, n] how likely these are, -inf where a sentence has fewer of them"""
    columns: int


class NonAutoregressiveSession(Session):
    """`capacity` sentences; one iteration makes all of an output."""

    @torch.inference_mode()
    def __init__(
        self,
        model: OnePass,
        runner: Runner,
        length_window: int,
        length_weight: float,
        dedup: int,
        capacity: int,
        limits: Limits,
        longest_source: int,
    ) -> None:
        self.capacity = capacity
        self.calls = 0
        self._model = model
        self._runner = runner
        self._device = device = runner.device
        self._limits = limits
        self._length_window = length_window
        self._length_weight = length_weight
        self._dedup = dedup
        self._banned = _banned(model, limits, device)
        self._encode = programs.encode(model)
        self._fill = programs.fill(model)
        columns = int(limits.longest_outputs(torch.tensor(longest_source))) + 1
        self._tokens = torch.full((capacity, columns), EOS, dtype=torch.int64, device=device)
        self._lengths = torch.zeros(capacity, dtype=torch.int64, device=device)
        self._scores = torch.zeros(capacity, 2, dtype=torch.float64, device=device)
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
        lengths, odds = self._tried(source.lengths)
        widest = int(source.lengths.max())
        padded = bool((source.lengths != widest).any())
        ids, source_lengths = source.ids[:, :widest].to(self._device), source.lengths.to(self._device)
        encoded = self._runner.call(self._encode, ids, source_lengths, padded)
        self.calls += 1
        there = lengths.to(self._device), odds.to(self._device)
        self._waiting.append(_Waiting(slots, encoded, *there, int(lengths.max())))
        self._ticket[torch.tensor(slots, device=self._device)] = torch.tensor(tickets, device=self._device)
        return tickets

    def _tried(self, source_lengths: Tensor) -> tuple[Tensor, Tensor]:
        """[rows, n] the lengths to be tried and their odds."""
        options = self._model.options
        predicted = options.length.predict(source_lengths)
        window = Window.around(predicted, self._length_window, self._limits, source_lengths, options.longest)
        longest = window.longest[:, None]
        lengths = window.shortest[:, None] + torch.arange(int((window.longest - window.shortest).max()) + 1)
        odds = self._length_weight * options.length.log_odds(source_lengths, lengths)
        return lengths.minimum(longest), odds.masked_fill(lengths > longest, -torch.inf)

    @torch.inference_mode()
    def advance(self) -> Step:
        """Fill the canvases of all sentences that wait."""
        calls = 0
        active = [False] * self.capacity
        for group in self._waiting:
            for slot in group.slots:
                active[slot] = self._done[slot] = True
            portion = self._rows_at_once(group)
            for first in range(0, group.encoded.rows, portion):
                self._write(group, first, first + portion)
                calls += 1
        self._waiting = []
        self.calls += calls
        return self._step(torch.tensor(active, device=self._device), calls)

    def _write(self, group: _Waiting, first: int, last: int) -> None:
        lengths, odds = group.lengths[first:last], group.odds[first:last]
        encoded = group.encoded.slice(first, last)
        found: Filled = self._runner.call(self._fill, self._banned, self._dedup, encoded, lengths, odds, group.columns)
        rows = torch.tensor(group.slots[first:last], device=self._device)
        self._tokens[rows, : group.columns] = found.tokens
        self._lengths[rows] = found.lengths
        self._scores[rows] = torch.stack([found.score, found.log_probability], dim=1).double()

    def _rows_at_once(self, group: _Waiting) -> int:
        """How many of these sentences fit into one pass."""
        options = self._model.options
        widest = max(options.feed_forward, 3 * options.width)
        return max(1, AT_ONCE // (group.lengths.shape[1] * group.columns * widest))

    def _step(self, active: Tensor, calls: int) -> Step:
        """Every output written whole."""
        columns = torch.arange(self._tokens.shape[1], device=self._device)
        written = (columns < self._lengths[:, None]) & active[:, None]
        none = torch.zeros_like(self._ticket)
        return Step(
            self._ticket, active, columns.expand_as(self._tokens), self._tokens, written, none, none, calls=calls
        )

    @torch.inference_mode()
    def take_finished(self) -> list[Finished]:
        """Read back the outputs of the slots that were filled; which these are the host knows."""
        ready = self._slots.ready(self._done)
        if not ready:
            return []
        index = torch.tensor(ready, device=self._device)
        tokens, lengths = self._tokens[index].tolist(), self._lengths[index].tolist()
        scores = self._scores[index].tolist()
        taken = []
        for slot, ids, length, (score, log_probability) in zip(ready, tokens, lengths, scores, strict=True):
            self._done[slot] = False
            taken.append(Finished(self._slots.release(slot), [Hypothesis(ids[: length - 1], score, log_probability)]))
        return taken


def _banned(model: OnePass, limits: Limits, device: torch.device) -> Tensor:
    """[vocabulary] bool: which ids may stand in no slot but the last."""
    banned = torch.zeros(model.options.vocabulary, dtype=torch.bool, device=device)
    ids = [*NEVER_GENERATED, EOS, *(token for token in limits.banned if 0 <= token < model.options.vocabulary)]
    banned[torch.tensor(ids, device=device)] = True
    if len(set(ids)) == model.options.vocabulary:
        raise OptionError("banned expects to leave at least one id that is a word, found all of them.")
    return banned
