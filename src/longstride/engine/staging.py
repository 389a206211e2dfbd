"""New sentences on their way into a table: one small copy to the device brings all that is known of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from longstride.contract import PAD, Runner, Source

NUMBERS = 4
"""Beside the ids of a sentence: its length, its row, its ticket and where its random numbers come from."""


class InputStaging:
    """A portion of sentences, in a tensor that never moves; places that are not needed hold the shortest one."""

    def __init__(self, portion: int, longest_source: int, runner: Runner) -> None:
        self.portion = portion
        self._longest = longest_source
        self._device = runner.device
        shape = (portion, longest_source + NUMBERS)
        on_cuda = runner.device.type == "cuda"
        with torch.inference_mode(False):  # so that sending need not enter it
            self._all = torch.zeros(shape, dtype=torch.int64, device=runner.device)
            self._all[:, longest_source] = 1
            # GraphValue once: memory that a device can read is dear to come by.
            self._desk = torch.zeros(shape, dtype=torch.int64, pin_memory=True) if on_cuda else self._all
        self._numbers = self._desk.numpy()
        self._sent = torch.cuda.Event() if on_cuda else None  # type: ignore[no-untyped-call]

    def send(self, source: Source, rows: list[int], tickets: list[int], streams: list[int] | None = None) -> None:
        """Bring up to a portion of sentences, the rows that they are meant for and their tickets; `streams` of random
        numbers where something is drawn."""
        count, longest = source.rows, self._longest
        if self._sent is not None:
            self._sent.synchronize()  # what lies on the desk may still be on its way
        numbers, padding = self._numbers, [PAD] * (longest - source.longest)
        # As lists: for the few sentences that come at once, tensors and arrays take longer to ask than to read.
        each = zip(source.ids.tolist(), source.lengths.tolist(), rows, tickets, streams or tickets, strict=True)
        for place, (ids, length, *others) in enumerate(each):
            numbers[place] = [*ids, *padding, length, *others]
        if count < self.portion:
            numbers[count:] = PAD
            numbers[count:, longest] = 1
        if self._sent is not None:
            self._all.copy_(self._desk, non_blocking=True)
            self._sent.record(torch.cuda.current_stream(self._device))

    @property
    def ids(self) -> Tensor:
        """[portion, longest source]"""
        return self._all[:, : self._longest]

    @property
    def lengths(self) -> Tensor:
        """[portion]"""
        return self._all[:, self._longest]

    @property
    def rows(self) -> Tensor:
        """[portion]"""
        return self._all[:, self._longest + 1]

    @property
    def tickets(self) -> Tensor:
        """[portion]"""
        return self._all[:, self._longest + 2]

    @property
    def streams(self) -> Tensor:
        """[portion]"""
        return self._all[:, self._longest + 3]


class Admission:
    """The way of sentences into a table of searches: in equal portions where the runner records, else together."""

    def __init__(
        self,
        runner: Runner,
        capacity: int,
        longest_source: int,
        enter: Callable[[InputStaging, int], None],
        buffers: Callable[[], list[Tensor]],
    ) -> None:
        """`enter` takes in so many of the staging; `buffers` are the tensors that it writes."""
        self._runner = runner
        self._enter = enter
        self._buffers = buffers
        self._staging = InputStaging(max(1, capacity // 4), longest_source, runner) if runner.records else None
        self._recorded: Callable[[], None] | None = None

    @property
    def portion(self) -> int:
        """Sentences that are let in together where they are recorded; else 1."""
        return 1 if self._staging is None else self._staging.portion

    @property
    def recordings(self) -> int:
        """How many portions were recorded: one or none."""
        return int(self._recorded is not None)

    def admit(self, source: Source, slots: list[int], tickets: list[int]) -> int:
        """Let new sentences in; how many portions they made."""
        staging = self._staging
        if staging is None:
            # Together, in a rectangle of their own: nothing is recorded, and none of it is wasted.
            staging = InputStaging(source.rows, source.longest, self._runner)
            staging.send(source, slots, tickets)
            self._enter(staging, source.rows)
            return 1
        for first in range(0, source.rows, staging.portion):
            last = min(first + staging.portion, source.rows)
            staging.send(source.slice(first, last), slots[first:last], tickets[first:last])
            if last - first < staging.portion:
                self._enter(staging, last - first)
                continue
            if self._recorded is None:
                enter = partial(self._enter, staging, staging.portion)
                self._recorded = self._runner.record("enter", enter, self._buffers())
            self._recorded()
        return -(-source.rows // staging.portion)
