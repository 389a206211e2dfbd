"""What an interleaved session keeps on the device: sources, caches, who stands where; how sentences enter, and steps.

Entering and stepping are functions of tensors alone. Where the runner records, these have their full size from the
start and never move, so that both are recorded once and repeated. Knows no search: greedy search and the beam are
tables of their own, with hypotheses beside what is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import Limits, Runner, Source
from longstride.nn import programs
from longstride.ops import aligned
from longstride.search.length_penalty import LengthPenalty
from longstride.systems.interleaved.kernels import usable
from longstride.systems.interleaved.model import InterleavedModel
from longstride.systems.interleaved.programs import extend, tie
from longstride.verification.arrivals import Arrivals, Entrance
from longstride.verification.reading import forbidden_ids


@dataclass(frozen=True)
class Search:
    """How outputs are looked for and ranked."""

    width: int
    n_best: int
    penalty: LengthPenalty
    count_dropped: bool
    """as the paper's authors do: what a step says after EOS is dropped, but scored"""
    dedup: int


class Table(ABC):
    """`capacity` sentences of `search.width` rows each."""

    def __init__(
        self,
        model: InterleavedModel,
        runner: Runner,
        search: Search,
        capacity: int,
        limits: Limits,
        longest_source: int,
        grows: bool = False,
    ) -> None:
        self.options = model.options
        self.search = search
        self.steady = runner.records
        self._runner = runner
        # The authors allow no EOS in the first step.
        self._earliest = max(limits.min_length, self.options.step if search.count_dropped else 0)
        self._encode_source = programs.encode_source(model.model)
        self._extend = extend(model)
        link = model.interleaving.link
        self._tie = None if link is None else tie(link)
        device = runner.device
        self.room = int(limits.longest_outputs(torch.tensor(longest_source)))
        self.columns = self.room + self.options.step  # the last step may begin where only EOS is left
        self._memory = model.model.new_memory(capacity, longest_source)
        # A cache that is copied with every step had better not be longer than it must.
        self._cache = model.model.new_cache(capacity * search.width, 1 if grows and not self.steady else self.columns)
        self._own = usable(runner)
        self._layout = model.layout(aligned(self.columns), self._own)
        self._never = forbidden_ids(limits, device)
        # By source length, looked up: working it out takes five kernels for every new sentence.
        self._longest_of = limits.longest_outputs(torch.arange(longest_source + 1)).to(device)
        self.ticket = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        self._entrance = Entrance(runner, capacity, longest_source, self._enter, lambda: self.buffers)

    @property
    def buffers(self) -> list[Tensor]:
        """All that a step or an entrance writes."""
        return [*self._memory.buffers, *self._cache.buffers, self.ticket]

    @property
    @abstractmethod
    def recordings(self) -> int:
        """How many steps and entrances were recorded."""

    @property
    def nbytes(self) -> int:
        """What the tensors take that stay."""
        return sum(buffer.nbytes for buffer in self.buffers)

    def admit(self, source: Source, slots: list[int], tickets: list[int]) -> int:
        """Encode new sentences and open a search for each; how many times the encoder was called."""
        return self._entrance.admit(source, slots, tickets)

    def _enter(self, arrivals: Arrivals, count: int) -> None:
        slots = arrivals.rows[:count]
        self._memory.put(slots, self._runner.call(self._encode_source, arrivals.ids, arrivals.lengths).first(count))
        self.ticket.index_copy_(0, slots, arrivals.tickets[:count])
        self._open(slots, self._longest_of[arrivals.lengths[:count]])

    @abstractmethod
    def _open(self, slots: Tensor, longest: Tensor) -> None:
        """Begin anew in these slots, for outputs of at most `longest` words."""
