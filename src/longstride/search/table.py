"""What every search keeps on the device for a batch of sentences: encoder states and caches; how sentences enter.

Entering is a function of tensors alone. Where the runner records, tensors have their full size from the start and never
move, so that it is recorded once and repeated; elsewhere caches may grow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from longstride.contract import Limits, Program, Runner, Source
from longstride.engine.pool import Admission, InputStaging
from longstride.nn import programs
from longstride.nn.cache import row_index
from longstride.nn.transformer import Transformer
from longstride.verification.acceptance import forbidden_ids


@dataclass(frozen=True)
class SearchModel:
    """One model of a search, and its call."""

    model: Transformer
    extend: Program
    """(ids [rows, step], start [rows], cache, memory, *more, span) -> logits [rows, step, vocabulary], or a tuple with
    these first"""
    more: tuple[Any, ...] = ()


class SearchTable(ABC):
    """`capacity` sentences of `width` rows each, with room for outputs of `columns` words."""

    def __init__(
        self,
        models: Sequence[SearchModel],
        runner: Runner,
        limits: Limits,
        capacity: int,
        longest_source: int,
        columns: int,
        width: int = 1,
        grows: bool = False,
    ) -> None:
        self.columns = columns
        self.steady = not grows
        """it keeps its shape, so that the next session may use it"""
        self.calls = len(models)
        """model calls of the last step"""
        self._runner, self._models = runner, models
        device = runner.device
        self._encode = [programs.encode_source(one.model) for one in models]
        self._memories = [one.model.new_memory(capacity, longest_source) for one in models]
        # A cache whose rows move had better not be longer than it must.
        self._caches = [one.model.new_cache(capacity * width, 1 if grows else columns) for one in models]
        self._forbidden = forbidden_ids(limits, device, models[0].model.special)
        # By source length, looked up: working it out takes five kernels for every new sentence.
        self._longest_of = limits.longest_outputs(torch.arange(longest_source + 1)).to(device)
        self.ticket = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        self._admission = Admission(runner, capacity, longest_source, self._enter, lambda: self.buffers)
        self._recorded: dict[int, Callable[[], Any]] = {}

    @property
    def buffers(self) -> list[Tensor]:
        """All that a step or an entrance writes."""
        memories = [buffer for memory in self._memories for buffer in memory.buffers]
        return [self.ticket, *memories, *(buffer for cache in self._caches for buffer in cache.buffers)]

    @property
    def portion(self) -> int:
        """Sentences that are best admitted together."""
        return self._admission.portion

    @property
    def recordings(self) -> int:
        """How many steps and entrances were recorded."""
        return len(self._recorded) + self._admission.recordings if self._runner.records else 0

    @property
    def nbytes(self) -> int:
        """What the tensors take that stay."""
        return sum(buffer.nbytes for buffer in self.buffers)

    def admit(self, source: Source, slots: list[int], tickets: list[int]) -> int:
        """Encode new sentences and open a search for each; how many times encoders were called."""
        return len(self._encode) * self._admission.admit(source, slots, tickets)

    def _enter(self, staging: InputStaging, count: int) -> None:
        slots = staging.rows[:count]
        where = row_index(slots, len(self.ticket), self._runner.records)
        for encode, memory in zip(self._encode, self._memories, strict=True):
            memory.put(where, self._runner.call(encode, staging.ids, staging.lengths).first(count))
        self.ticket.index_copy_(0, slots, staging.tickets[:count])
        self._open(slots, self._longest_of[staging.lengths[:count]])

    @abstractmethod
    def drop(self, slot: int) -> None:
        """Give the sentence in this slot up."""

    @abstractmethod
    def _open(self, slots: Tensor, longest: Tensor) -> None:
        """Begin anew in these slots, for outputs of at most `longest` words."""
