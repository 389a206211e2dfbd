"""Rows that are refilled on the device: sentences wait there encoded, and an iteration begins by giving idle rows the
next of them.

So nobody waits for the host between two iterations, and encoders read sentences in groups, whoever becomes free when.
Which sentence stands in which row the host learns from the report that each iteration ends with.

Sentences are encoded beside iterations, where the runner can do two things at once (:meth:`Runner.beside`). An entrance
writes places that no row takes a sentence from, since the host has a report that says so, and counts them as added last
of all; an iteration reads that count once, first of all, and takes nothing beyond it. So it finds whole sentences,
however far the next entrance is, and neither the host nor a row in use waits for an encoder. A count is one word, and
all kernels of an entrance but that one are over when it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from longstride.contract import Source
from longstride.engine.outputs import Rows
from longstride.engine.pool import InputStaging
from longstride.nn.transformer import Transformer
from longstride.verification.batch_state import BatchState
from longstride.verification.step import StepResult

LEAST, MOST = 32, 64
"""Sentences of a group: as many as there are rows, within these. More would take memory and make encoding no faster."""
NARROWEST = 32
"""Groups are encoded no narrower: so many tokens take no longer than fewer, and each width is a recording."""
REPORTS = 3
"""Reports on their way at once: the host may be at other work for as long as two iterations take."""
FEWEST, SHARE = 4, 8
"""Where sentences arrive a few at a time, a group is an eighth of the rows, about what becomes free in an iteration,
and no less than four: these take no longer than one."""
MOST_ROWS = 4096
"""One program of a kernel looks at all rows."""

Moved = tuple[Tensor, Tensor, int]
"""Tensors of the rows and of the queue, and the dimension that rows and places have in both."""


@dataclass(frozen=True)
class Ahead:
    """How far encoders and the host are ahead of each other."""

    group: int
    """sentences that are encoded together"""
    groups: int
    """that a queue holds: while rows take the sentences of one, the next is encoded"""
    narrowest: int
    """the least width of their rectangles"""
    reports: int
    """that are on their way at once"""

    @staticmethod
    def of(capacity: int, arriving: bool) -> Ahead:
        """For so many rows; `arriving`: somebody waits for each sentence, and they come a few at a time, of any length,
        so that one width for most saves more than narrow ones would."""
        if arriving:
            group = max(FEWEST, capacity // SHARE)
            return Ahead(group, max(2, min(capacity, 2 * MOST) // group), 2 * NARROWEST, min(2, REPORTS))
        return Ahead(min(MOST, max(LEAST, capacity)), 2, NARROWEST, REPORTS)


class SentenceQueue:
    """Sentences in the order in which rows take them: a ring of places, each with all that a row needs of a sentence.

    Numbers of sentences only grow; sentence n lies at place n modulo the places. One place more is nobody's: what is
    too much of a group goes there.
    """

    def __init__(self, table: BatchState, model: Transformer, places: int) -> None:
        batch, drafter, device = table.batch, table.drafter, table.runner.device
        self.places = places
        self._table = table
        rows, columns = self.places + 1, table.outputs.tokens.shape[1]
        self.memory = model.new_memory(rows, table.longest_source)
        self.drafter = drafter.begin_waiting(rows, table.longest_source, columns, device)
        number = partial(torch.zeros, dtype=torch.int64, device=device)
        self.longest, self.ticket = number(rows), number(rows)
        self.streams = None if batch.streams is None else number(rows)
        self.taken, self.added = number(1), number(1)
        """how many sentences rows have taken, and how many were ever added"""
        self._moved: list[Moved] = [
            (there, here, 1 if there.dim() == 5 else 0)
            for there, here in zip(batch.memory.buffers, self.memory.buffers, strict=True)
        ]
        self._moved += [(batch.longest, self.longest, 0), (table.ticket, self.ticket, 0)]
        if batch.streams is not None and self.streams is not None:
            self._moved.append((batch.streams, self.streams, 0))
        of_rows, of_places = drafter.per_sentence(batch.drafter), drafter.per_sentence(self.drafter)
        self._moved += [(there, here, dim) for (there, dim), (here, _) in zip(of_rows, of_places, strict=True)]
        self._kernel = kernel_of(self._moved) if table.runner.fuses and len(table.ticket) <= MOST_ROWS else None

    @property
    def entered(self) -> list[Tensor]:
        """What an entrance writes."""
        streams = [] if self.streams is None else [self.streams]
        of_drafter = [tensor for tensor, _ in self._table.drafter.per_sentence(self.drafter)]
        return [*self.memory.buffers, self.longest, self.ticket, self.added, *streams, *of_drafter]

    @property
    def refilled(self) -> list[Tensor]:
        """What refilling writes, beside the rows."""
        return [self.taken, *([] if self._kernel is None else self._kernel.buffers)]

    def enter(self, staging: InputStaging) -> None:
        """Encode a group, and put it where its sentences say; a sentence that is nobody's goes to the place that is."""
        table = self._table
        places, source = staging.rows, staging.source(staging.portion)
        memory = table.runner.call(table.encode, staging.ids, staging.lengths)
        self.memory.put(places, memory)
        table.drafter.admit(self.drafter, places, source, memory)
        self.longest.index_copy_(0, places, table.longest_of[source.lengths])
        self.ticket.index_copy_(0, places, staging.tickets)
        if self.streams is not None:
            self.streams.index_copy_(0, places, staging.streams)
        self.added.add_((places < self.places).sum())  # the last of all: from now on rows may take them

    def refill(self) -> None:
        """Give idle rows the next sentences, one each in the order of the rows, as far as there are some."""
        table = self._table
        given = (table.outputs.rows, self.taken, self.added, self.ticket, self.places, table.special.start)
        if self._kernel is not None:
            self._kernel(*given)
        else:
            refill(self._moved, *given)

    @torch.inference_mode()
    def drop(self, ticket: int) -> None:
        """Give up a sentence that waits or stands in a row; what encodes it, or others, is waited for."""
        self._table.runner.join()
        self.ticket.masked_fill_(self.ticket == ticket, -1)
        rows = self._table.outputs.rows
        here = (self._table.ticket == ticket) & ~rows.done
        rows.done.logical_or_(here)
        if rows.start is not None:
            rows.start.masked_fill_(here, 0)
        self._table.runner.join()

    @torch.inference_mode()
    def skip(self) -> None:
        """Forget all that waits."""
        self._table.runner.join()
        self.taken.copy_(self.added)


def kernel_of(moved: Sequence[Moved]) -> Any:
    """What does the same as :func:`refill` by two kernels on a CUDA device; None: tensors are laid out otherwise."""
    from longstride.ops.cuda.refill import Refill

    return Refill(moved) if Refill.supports(moved) else None


def refill(
    moved: Sequence[Moved], rows: Rows, taken: Tensor, added: Tensor, ticket: Tensor, places: int, start: int
) -> None:
    """Rows that are done take sentence number `taken` [1] and those after it, up to `added` [1], out of a ring of so
    many places; `ticket` [places + 1] is negative for those that were given up meanwhile: their rows stay idle."""
    number = taken + rows.done.long().cumsum(0) - 1
    takes = rows.done & (number < added)
    place = torch.where(takes, number % places, places)
    taken.add_(takes.sum())
    for there, here, dim in moved:
        chosen = takes.view(-1, *[1] * (there.dim() - dim - 1))
        there.copy_(torch.where(chosen, here.index_select(dim, place), there))
    rows.done.copy_(torch.where(takes, ticket[place] < 0, rows.done))
    for tensor, value in ((rows.length, 0), (rows.log_probability, 0), (rows.newest, start), (rows.start, 0)):
        if tensor is not None:
            tensor.masked_fill_(takes, value)


# --- a table with a queue ---------------------------------------------------------------------------------------------

REPORT = 5
"""Numbers per row at the front of a report: ticket, done, length, the log-probability's bits, sentences taken."""


class RefilledState:
    """A batch whose rows take their sentences out of a queue: what a session of it repeats."""

    steady = True
    """it keeps its shape, and what it holds of earlier sentences is hidden: another session may have it"""

    @torch.inference_mode()
    def __init__(self, table: BatchState, model: Transformer, ahead: Ahead) -> None:
        self.table, self.queue = table, SentenceQueue(table, model, ahead.groups * ahead.group)
        self._ahead = ahead
        self._staging: dict[int, InputStaging] = {}
        self._entering: dict[int, Callable[[], None]] = {}
        self._iterating: dict[tuple[int, int], Callable[[], tuple[StepResult, Tensor]]] = {}
        shape = (len(table.ticket), REPORT + table.outputs.tokens.shape[1])
        self.sentences = 0
        """how many were ever added, as the host knows"""
        self.landings = [Landing(shape, table.runner.device) for _ in range(ahead.reports)]
        """where reports arrive on the host, in turns"""

    @cached_property
    def _iterated(self) -> list[Tensor]:
        """What an iteration writes."""
        return [*(self.table.buffers or []), *self.queue.refilled]

    @property
    def recordings(self) -> int:
        """How many ways of entering and iterating were recorded."""
        return len(self._entering) + len(self._iterating)

    @cached_property
    def nbytes(self) -> int:
        """What the tensors take that stay."""
        return sum(buffer.nbytes for buffer in [*self._iterated, *self.queue.entered])

    @torch.inference_mode()
    def begin(self) -> None:
        """Forget the tickets of an earlier session, all of whose rows are done."""
        self.table.ticket.fill_(-1)

    def width(self, length: int) -> int:
        """Sources of so many tokens are encoded in rectangles of this width, whoever is beside them."""
        return min(self.table.runner.round_up(length, self._ahead.narrowest), self.table.longest_source)

    def admit(
        self, source: Source, places: list[int], tickets: list[int], streams: list[int] | None, width: int
    ) -> None:
        """Encode up to a group of sentences of this width into these places, beside iterations."""
        table, runner = self.table, self.table.runner
        with runner.beside():
            if width not in self._staging:
                sizes = (self._ahead.group, width, runner, table.longest_draft, self.queue.places)
                self._staging[width] = InputStaging(*sizes)
            self._staging[width].send(replace(source, ids=source.ids[:, :width]), places, tickets, streams)
            if width not in self._entering:
                enter = partial(self._enter, self._staging[width])
                with torch.inference_mode():
                    self._entering[width] = runner.record(f"enter {width}", enter, self.queue.entered)
            self._entering[width]()

    @torch.inference_mode()
    def _enter(self, staging: InputStaging) -> None:
        self.queue.enter(staging)

    def iteration(self, block: int, window: int) -> Callable[[], tuple[StepResult, Tensor]]:
        """What refills rows and carries out an iteration, again and again; it also gives a report."""
        key = (block, window)
        if key not in self._iterating:
            with torch.inference_mode():
                run = partial(self._run, block, window)
                self._iterating[key] = self.table.runner.record(f"iterate {block}", run, self._iterated)
        return self._iterating[key]

    @torch.inference_mode()
    def _run(self, block: int, window: int) -> tuple[StepResult, Tensor]:
        self.queue.refill()
        found, table = self.table.run(block, window), self.table
        rows, count = table.outputs.rows, self.queue.taken.expand(len(table.ticket))
        likelihood = rows.log_probability.view(torch.int64)
        numbers = torch.stack([table.ticket, rows.done.long(), rows.length, likelihood, count], dim=1)
        return found, torch.cat([numbers, rows.tokens], dim=1)


class Landing:
    """Where a report arrives on the host."""

    def __init__(self, shape: tuple[int, int], device: torch.device) -> None:
        on_cuda = device.type == "cuda"
        with torch.inference_mode(False):
            self._copied = torch.zeros(shape, dtype=torch.int64, pin_memory=on_cuda)
        self.numbers = self._copied.numpy()
        """[rows, REPORT + columns]"""
        self._sent = torch.cuda.Event() if on_cuda else None  # type: ignore[no-untyped-call]
        self._device = device

    def send(self, report: Tensor) -> None:
        """Have it arrive when all that was asked for so far has been done."""
        self._copied.copy_(report, non_blocking=True)
        if self._sent is not None:
            self._sent.record(torch.cuda.current_stream(self._device))

    def wait(self) -> None:
        """Until it has arrived."""
        if self._sent is not None:
            self._sent.synchronize()
