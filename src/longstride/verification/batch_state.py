"""The state of a verifying session: all that changes, in tensors that never move, and what is done to them.

It keeps, per row, the committed ids and their number; the cache holds keys and values of the input slots, where slot s
holds the token before output position s (START at 0). After an iteration that commits n tokens, the cache is right up
to the new length and left-over beyond it: rewinding is not moving the length further.

Entering and iterating are functions of these tensors alone, so that a runner may capture or bind them once and repeat
them. Knows no slots and no tickets beyond their numbers: which row is free the session knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from longstride.contract import Limits, Program, Runner, Source, Step
from longstride.engine.outputs import Outputs
from longstride.engine.pool import InputStaging
from longstride.nn import programs
from longstride.nn.cache import EncoderState, RowIndex, put_rows, row_index
from longstride.nn.transformer import Transformer
from longstride.verification import step_programs
from longstride.verification.acceptance import forbidden_ids
from longstride.verification.drafting import Drafter
from longstride.verification.kernels import permitted_ids
from longstride.verification.prefixes import TablePrefixes
from longstride.verification.step import Acceptance, Batch, StepResult, VerifyStep

WIDTHS = 16
"""Sources are encoded in rectangles of multiples of this many tokens, where none is recorded."""
WIDTHS_ALONE = 4
"""The same of a row by itself, whose bits do not depend on that: each width is bound once, and tokens that are too many
cost as much as others."""


class BatchState:
    """One verifier, one drafter, `capacity` rows for sources of at most `longest_source` tokens."""

    def __init__(
        self,
        model: Transformer,
        runner: Runner,
        drafter: Drafter,
        capacity: int,
        limits: Limits,
        longest_source: int,
        acceptance: Acceptance,
        verify: Program,
    ) -> None:
        self.runner, self.drafter, self.verify = runner, drafter, verify
        # Encoding in equal portions keeps a sentence's bits independent of who is admitted beside it.
        self.portion = max(1, capacity // 4)
        self.longest_source, self.special = longest_source, model.special
        self.encode = programs.encode_source(model)
        call = runner.call if runner.records else None  # so that a recording can be taken apart
        self._step = VerifyStep(verify, drafter, acceptance, limits, model.special, call)
        fused = runner.fuses and self._step.fuses
        special = self.special

        device = runner.device
        longest = int(limits.longest_outputs(torch.tensor(longest_source)))
        # EOS, and a draft that starts at the last position
        columns = longest + 1 + drafter.block
        memory = model.new_memory(capacity, longest_source)
        cache = model.new_cache(capacity, columns)
        cache.prepare(cache.longest, model.options.local_attention)
        # The newest token of each row and, where a drafter puts it there, the draft behind it: what a step reads.
        ids = (
            torch.full((capacity, 1 + drafter.block), special.start, dtype=torch.int64, device=device)
            if fused
            else None
        )
        self.outputs = Outputs(capacity, columns, device, None if ids is None else ids[:, 0], special.start)
        # By source length, looked up: working it out takes five kernels for every new sentence.
        self.longest_of = limits.longest_outputs(torch.arange(longest_source + 1)).to(device)
        self.ticket = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        window = torch.ones(1, dtype=torch.int64)
        self.batch = Batch(
            self.outputs.rows,
            torch.zeros(capacity, dtype=torch.int64, device=device),
            forbidden_ids(limits, device, special),
            window,
            cache,
            memory,
            drafter.begin(capacity, longest_source, columns, device),
            looks=device.type == "cpu" and not runner.records,
            ids=ids,
            permitted=permitted_ids(limits, model.options.vocabulary, device, special) if fused else None,
            streams=None if acceptance.sampling is None else torch.zeros_like(self.ticket),
            prefixes=(
                TablePrefixes.empty(capacity, columns, model.options.vocabulary, device) if limits.prefixes else None
            ),
        )
        self._window = window.numpy()
        self.recorded = runner.records and self.buffers is not None
        """whether what is done here may come from a recording: then few shapes are better than fitting ones"""
        # EOS counted; of a longer text no more could become output.
        self.longest_draft = longest + 1 if drafter.reads_drafts else 0
        self._staging = InputStaging(self.portion, longest_source, runner, self.longest_draft)
        self._encoding: dict[int, Callable[[], EncoderState]] = {}  # by width
        self._entering: Callable[[], None] | None = None
        self._iterating: dict[tuple[int, int], Callable[[], StepResult]] = {}
        self._told: tuple[StepResult, Step] | None = None

    steady = True
    """it keeps its shape, and what it holds of earlier sentences is hidden: another session may have it"""

    @cached_property
    def buffers(self) -> list[Tensor] | None:
        """All that an iteration or an entrance writes; None where the drafter works on the host."""
        batch = self.batch
        of_drafter = self.drafter.buffers(batch.drafter)
        if of_drafter is None:
            return None
        some = [tensor for tensor in (batch.ids, batch.streams) if tensor is not None]
        some += [] if batch.prefixes is None else batch.prefixes.buffers
        own = [*batch.memory.buffers, *batch.cache.buffers, *self.outputs.buffers, *some, batch.longest, self.ticket]
        return [*own, *of_drafter]

    @property
    def recordings(self) -> int:
        """How many ways of entering and iterating were recorded."""
        return len(self._iterating) + (self._entering is not None) if self.recorded else 0

    @cached_property
    def nbytes(self) -> int:
        """What the tensors take that stay."""
        return sum(buffer.nbytes for buffer in self.buffers or [])

    # --- new sentences -----------------------------------------------------------------------------------------------

    def portions(self, source: Source) -> list[tuple[int, list[int]]]:
        """Widths, and the sentences to encode together in a rectangle of each: what a sentence is encoded in depends on
        its own length alone, so that its bits do not depend on who is beside it."""
        lengths = source.lengths.tolist()
        if self.recorded or (len(self.ticket) == 1 and not self.runner.shape_invariant):  # one shape
            widths = {self.longest_source: list(range(len(lengths)))}
        else:
            widths, border = {}, WIDTHS if len(self.ticket) > 1 else WIDTHS_ALONE
            for place, length in enumerate(lengths):
                widths.setdefault(min(-(-length // border) * border, self.longest_source), []).append(place)
        return [
            (width, some[first : first + self.portion])
            for width, some in widths.items()
            for first in range(0, len(some), self.portion)
        ]

    def admit(
        self,
        source: Source,
        rows: list[int],
        tickets: list[int],
        streams: list[int] | None = None,
        width: int | None = None,
    ) -> None:
        """Open rows for up to a portion of sentences; `streams` of random numbers where tokens are drawn. They are
        encoded in a rectangle of that `width`."""
        width = width or self.longest_source
        self._staging.send(source, rows, tickets, streams)
        if self.batch.prefixes is not None:
            self.batch.prefixes.put(rows, source.prefixes)
        if not self.recorded:
            self._enter(len(rows), width)
            return
        if self._entering is None:
            with torch.inference_mode():
                self._entering = self._prepared("enter", partial(self._enter, self.portion, width))
        self._entering()

    def drop(self, row: int) -> None:
        """Give the sentence in this row up."""
        self.outputs.drop(row)

    @torch.inference_mode()
    def _enter(self, count: int, width: int) -> None:
        """Encode the whole portion, and open rows for the first `count` of it; the rest repeats its first."""
        staging, batch = self._staging, self.batch
        rows, source = staging.rows[:count], staging.source(count)
        if width < self.longest_source:
            source = replace(source, ids=source.ids[:, :width])
        memory = self._encoded(count, width)
        self.drafter.admit(batch.drafter, rows, source, memory)
        self.outputs.open(rows)
        batch.longest.index_copy_(0, rows, self.longest_of[source.lengths])
        self.ticket.index_copy_(0, rows, staging.tickets[:count])
        if batch.streams is not None:
            batch.streams.index_copy_(0, rows, staging.streams[:count])

    def _encoded(self, count: int, width: int) -> EncoderState:
        """The portion's first sentences, encoded, as far as a call goes; the batch has them."""
        staging, alone = self._staging, self.ticket.shape[0] == 1 and not self.recorded
        rows = count if self.runner.shape_invariant else self.portion
        some = (staging.ids[:rows, :width], staging.lengths[:rows])
        if alone and width not in self._encoding:
            self._encoding[width] = self.runner.bound(self.encode, *some)
        encode = self._encoding[width] if alone else partial(self.runner.call, self.encode, *some)
        memory = encode().first(count)
        self.batch.memory.put(row_index(staging.rows[:count], len(self.ticket), self.recorded), memory)
        return memory

    # --- rows of another table ---------------------------------------------------------------------------------------

    @property
    def movable(self) -> bool:
        """Whether rows may leave for another table, and come from one."""
        return self.runner.moves_rows and self.buffers is not None

    @torch.inference_mode()
    def resume(self, other: BatchState, here: list[int], source: Source, copied: bool) -> None:
        """The first rows go on with what stands in rows `here` of another table, of these sources; that table idles
        from then on. What the drafter remembers is `copied` where both remember the same, else it has to catch up."""
        device = self.runner.device
        of, to = torch.tensor(here, device=device), torch.arange(len(here), device=device)
        mine, theirs = self._by_rows(copied), other._by_rows(copied)
        for there, tensor in zip(mine, theirs, strict=True) if here else ():
            _copy_rows(there, tensor, row_index(to, 0, False), row_index(of, 0, False))
        rows, batch = self.outputs.rows, self.batch
        if rows.start is not None:
            rows.start.copy_(torch.where(rows.done, 0, rows.length))
        if batch.prefixes is not None and other.batch.prefixes is not None:
            batch.prefixes.never_next.copy_(other.batch.prefixes.never_next)
        other.outputs.drop(slice(None))
        for first in range(0, 0 if copied else len(here), self.portion):
            some = list(range(len(here)))[first : first + self.portion]
            self._staging.send(source.select(some), some, some)
            view = self._step.view(batch)
            self.drafter.resume(batch.drafter, to[some[0] : some[-1] + 1], self._staging.source(len(some)), view)

    def _by_rows(self, with_drafter: bool) -> list[Tensor]:
        """All that is kept of each row, in an order that is the same in every table of a verifier."""
        rows, batch = self.outputs.rows, self.batch
        numbers = [rows.length, rows.done, rows.log_probability, rows.drafted, rows.accepted, rows.newest]
        own = [*numbers, rows.tokens, self.ticket, batch.longest, *batch.memory.buffers, *batch.cache.buffers]
        own += [] if batch.streams is None else [batch.streams]
        own += [] if batch.prefixes is None else [batch.prefixes.ids, batch.prefixes.lengths]
        if not with_drafter:
            return own
        return [*own, *([] if batch.ids is None else [batch.ids]), *(self.drafter.buffers(batch.drafter) or [])]

    # --- draft, verify, commit ---------------------------------------------------------------------------------------

    def iteration(self, block: int, window: int) -> Callable[[], StepResult]:
        """What carries out an iteration with `block` drafted tokens, again and again; at most `window` came since
        the last draft, where that is not said anew each time (:meth:`expect`)."""
        key = (block, window if self.recorded else 0)
        found = self._iterating.get(key)
        if found is None:
            with torch.inference_mode():
                found = self._iterating[key] = self._iteration(block, window)
        return found

    def step_of(self, found: StepResult, calls: int) -> Step:
        """What an iteration of so many model calls did, as sessions tell it; a recording's tensors stay the same."""
        if self._told is None or self._told[0] is not found:
            rows = self.outputs.rows
            told = (found.active, found.positions, found.ids, found.written, rows.drafted, rows.accepted)
            self._told = (found, Step(self.ticket, *told, calls=calls, draft=found.draft, parents=found.parents))
        return self._told[1]

    def expect(self, window: int) -> None:
        """At most so many tokens came since the last draft."""
        self._window[0] = window

    def _iteration(self, block: int, window: int) -> Callable[[], StepResult]:
        if self.recorded:
            return self._prepared(f"iterate {block}", partial(self.run, block, window))
        if not self.runner.binds:
            return self.runner.bound(Program("step", partial(self._step.run, block=block)), self.batch)
        program = step_programs.whole(self._step, block)
        if program.graph is not None:
            return self.runner.bound(program, self.batch)
        # A draft that no model call makes is handed in: a graph gains nothing by giving back what it was given.
        if self._step.judges_apart and self.drafter.graph is not None and (self.drafter.calls or not block):
            return partial(
                self._judge, self.runner.bound(step_programs.reading(self._step, block, drafts=True), self.batch)
            )
        if self._step.judges_apart:
            reading = [step_programs.reading(self._step, block, False, tree) for tree in (False, True)]
            return partial(self._judge, partial(self._ask, reading, block))
        verifying = [step_programs.verifying(self._step, block, tree) for tree in (False, True)]
        return partial(self._ask_and_verify, verifying, block)

    @torch.inference_mode()
    def run(self, block: int, window: int) -> StepResult:
        """An iteration as tensor code, for who records it."""
        return self._step.run(replace(self.batch, window=window), block)

    def _ask(self, programs: Sequence[Program], block: int) -> Any:
        """For a drafter that cannot be traced: it is asked outside of the graph, which is one of chains or of trees."""
        proposal = self._step.propose(self.batch, block)
        return self.runner.call(programs[proposal.parents is not None], replace(self.batch, proposal=proposal))

    def _judge(self, read: Callable[[], Any]) -> StepResult:
        """Where no graph can judge: what comes before is a graph, and the rest tensor code."""
        with torch.inference_mode():
            return self._step.judge(self.batch, *read())

    def _ask_and_verify(self, verifying: Sequence[Program], block: int) -> StepResult:
        """What a drafter that cannot be traced learns of it, too."""
        with torch.inference_mode():
            result: StepResult
            result, hidden = self._ask(verifying, block)
            if hidden is not None:
                self._step.observe(self.batch, hidden)
            return result

    def _prepared(self, name: str, function: Callable[[], Any]) -> Callable[[], Any]:
        """The function, or a recording of it."""
        return self.runner.record(name, function, self.buffers) if self.recorded and self.buffers else function


def _copy_rows(there: Tensor, here: Tensor, to: RowIndex, of: RowIndex) -> None:
    """Rows `to` [n] of one tensor become what rows `of` [n] of another are, as far as there is room in both."""
    dim = max(0, there.dim() - 4)  # caches: [keys or values, layers, rows, heads, slots, head]
    for size in range(dim + 1, there.dim()):
        length = min(there.shape[size], here.shape[size])
        there, here = there.narrow(size, 0, length), here.narrow(size, 0, length)
    put_rows(there, to, here, dim, of)
