"""New sentences on their way into a table: one small copy to the device brings all that is known of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from longstride.contract import PAD, Runner, Source

NUMBERS = 3
"""Beside the ids of a sentence: its length, its row and its ticket."""


class InputStaging:
    """A portion of sentences, in a tensor that never moves; places that are not needed hold the shortest one.

    With `longest_draft`, each sentence's draft comes along, cut to so many tokens."""

    def __init__(self, portion: int, longest_source: int, runner: Runner, longest_draft: int = 0) -> None:
        self.portion = portion
        self._longest, self._longest_draft = longest_source, longest_draft
        self._device = runner.device
        shape = (portion, longest_source + NUMBERS + (longest_draft + 1 if longest_draft else 0))
        on_cuda = runner.device.type == "cuda"
        with torch.inference_mode(False):  # so that sending need not enter it
            self._all = torch.zeros(shape, dtype=torch.int64, device=runner.device)
            self._all[:, longest_source] = 1
            # GraphValue once: memory that a device can read is dear to come by.
            self._desk = torch.zeros(shape, dtype=torch.int64, pin_memory=True) if on_cuda else self._all
        self._numbers = self._desk.numpy()
        self._sent = torch.cuda.Event() if on_cuda else None  # type: ignore[no-untyped-call]

    def send(self, source: Source, rows: list[int], tickets: list[int]) -> None:
        """Bring up to a portion of sentences, the rows that they are meant for and their tickets."""
        count, longest = source.rows, self._longest
        if self._sent is not None:
            self._sent.synchronize()  # what lies on the desk may still be on its way
        numbers, padding = self._numbers, [PAD] * (longest - source.longest)
        # As lists: for the few sentences that come at once, tensors and arrays take longer to ask than to read.
        each = zip(source.ids.tolist(), source.lengths.tolist(), rows, tickets, self._drafts(source), strict=True)
        for place, (ids, length, row, ticket, draft) in enumerate(each):
            numbers[place] = [*ids, *padding, length, row, ticket, *draft]
        if count < self.portion:
            numbers[count:] = PAD
            numbers[count:, longest] = 1
        if self._sent is not None:
            self._all.copy_(self._desk, non_blocking=True)
            self._sent.record(torch.cuda.current_stream(self._device))

    def _drafts(self, source: Source) -> list[list[int]]:
        """Of each sentence, the numbers that tell its draft: how many tokens, and these, padded."""
        longest = self._longest_draft
        if not longest or source.drafts is None:
            return [[0] * (longest + 1 if longest else 0)] * source.rows
        ids, lengths = source.drafts.ids[:, :longest].tolist(), source.drafts.lengths.clamp(max=longest).tolist()
        return [
            [length, *tokens, *([PAD] * (longest - len(tokens)))] for length, tokens in zip(lengths, ids, strict=True)
        ]

    def source(self, count: int) -> Source:
        """The first `count` sentences, with their drafts where these are brought along."""
        found = self._all[:count, self._longest + NUMBERS :]
        drafts = Source(found[:, 1:], found[:, 0]) if self._longest_draft else None
        return Source(self.ids[:count], self.lengths[:count], drafts=drafts)

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
