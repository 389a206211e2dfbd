"""Greedy search: the most likely words of a step, all at once, for rows that are written from all their ends.

With a link they are chosen in c rounds, a word of every direction in each, given the word before it. Without
de-duplication every step is final when it is made; its positions are then numbers in the order of the sentence, whose
length nobody knows yet. Where kernels of our own are used, a step is one that lays out what the layers read, the
model's, one that chooses and one that commits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import torch
from torch import Tensor

from longstride.contract import Finished, Hypothesis, Limits, Runner, Source, SpecialIds, Step
from longstride.engine.outputs import HostCopy
from longstride.engine.pool import PooledSession, PoolKey
from longstride.ops import aligned
from longstride.search.beam import Search
from longstride.search.length_penalty import LengthPenalty
from longstride.search.table import SearchModel, SearchTable
from longstride.systems.interleaved.model import InterleavedModel
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.systems.interleaved.programs import extend, tie
from longstride.systems.interleaved.slots import after_all, anchors, sentence_of, sentences_of
from longstride.systems.interleaved.step import Choice, Committed, RowState, greedy_step, in_rounds
from longstride.verification.kernels import Bounds, permitted, summarise_fused

SMALL = 16384
"""Bytes of words that travel to the host with every look: it takes no longer than a few numbers do."""


class Rows:
    """`count` rows of sentences of at most `room` words."""

    def __init__(
        self, count: int, room: int, options: InterleavingOptions, special: SpecialIds, device: torch.device
    ) -> None:
        step, self._special = options.step, special
        self.columns = room + step  # the last step may begin where only EOS is left
        number, real = (torch.int64, (count,)), (torch.float64, (count,))
        # Rows that are done are written to as well, behind their end: full ones need a step more.
        ids = (torch.int64, (count, self.columns + step))
        every = {"length": number, "filled": number, "likelihood": real, "done": (torch.bool, (count,))}
        self._small = count * ids[1][1] * 8 <= SMALL
        self._copy = HostCopy({**every, "words": ids} if self._small else every, device)
        here = self._copy.here
        self._whole = here["words"] if self._small else torch.zeros(ids[1], dtype=torch.int64, device=device)
        self.words = self._whole[:, : self.columns]
        """[rows, columns] in the order of writing; beyond what a row has filled, left-overs"""
        self.filled = here["filled"]
        """[rows] slots that are written, a whole number of steps"""
        self.length = here["length"]
        """[rows] words before EOS"""
        self.log_probability = here["likelihood"]
        """[rows] of all that counts"""
        self.done = here["done"].fill_(True)
        """[rows] ended, or never begun"""
        self.ids = torch.full((count, step), special.start, dtype=torch.int64, device=device)
        """[rows, step] what the next step reads"""
        self.start = torch.zeros(count, dtype=torch.int64, device=device)
        """[rows] where it begins: what is filled, 0 where a row is done"""
        slots = torch.arange(self.columns + step, device=device)
        self.anchors = anchors(slots, room, options.h, options.order)
        self._last = after_all(room, options.h)
        self.behind = torch.tensor([self._last], device=device)

    @property
    def buffers(self) -> list[Tensor]:
        """All that changes."""
        return [*([] if self._small else [self._whole]), self._copy.whole, self.ids, self.start]

    def open(self, rows: Tensor) -> None:
        """Begin anew in these rows [n]."""
        if len(self.length) == 1:  # all that is kept side by side, at once
            self._copy.whole.fill_(0)
            self.ids.fill_(self._special.start)
            self.start.fill_(0)
            return
        for zeroed in (self.filled, self.length, self.log_probability, self.done, self.start):
            zeroed.index_fill_(0, rows, 0)
        self.ids.index_fill_(0, rows, self._special.start)

    @torch.inference_mode()
    def drop(self, row: int) -> None:
        """Its sentence is given up."""
        self.done[row], self.start[row] = True, 0

    @property
    def state(self) -> RowState:
        """What a step reads and writes."""
        return RowState(self._whole, self.filled, self.length, self.log_probability, self.done, self.ids, self.start)

    def commit_fused(self, reading: tuple[Tensor, Tensor, Tensor], count_dropped: bool) -> Committed:
        """Write what was chosen, its logits and what to subtract from them, in one kernel of our own. With
        `count_dropped`, what stands after EOS counts too."""
        from longstride.ops.cuda import interleaved_step as kernels

        state = (self.ids, self.filled, self.length, self.log_probability, self.done, self.start)
        eos = self._special.eos
        return Committed(*kernels.commit(reading, self.anchors, self._whole, state, self._last, count_dropped, eos))

    # --- what the host sees ------------------------------------------------------------------------------------------

    def look(self) -> Seen:
        """How things stand when all that was asked for has been done."""
        self._copy.send()
        self._copy.wait()
        return Seen(self._copy.seen, None if self._small else self._whole)


class Seen:
    """What the host sees of the rows."""

    def __init__(self, seen: dict[str, Tensor], apart: Tensor | None) -> None:
        self._seen, self._apart = seen, apart

    @property
    def done(self) -> list[bool]:
        """Per row, whether it is."""
        done: list[bool] = self._seen["done"].tolist()
        return done

    def of(self, row: int) -> tuple[list[int], int, float]:
        """Its words before EOS in the order of writing, the slots that are filled and its log-probability."""
        if self._apart is not None:
            self._seen, self._apart = {**self._seen, "words": self._apart.cpu()}, None
        length = int(self._seen["length"][row])
        words: list[int] = self._seen["words"][row, :length].tolist()
        return words, int(self._seen["filled"][row]), float(self._seen["likelihood"][row])


class GreedyTable(SearchTable):
    """One row per sentence."""

    def __init__(
        self,
        model: InterleavedModel,
        runner: Runner,
        search: Search,
        dedup: int,
        limits: Limits,
        capacity: int,
        longest_source: int,
    ) -> None:
        self.options, self.search, self.dedup = model.options, search, dedup
        room = limits.longest_output(longest_source)
        columns = room + self.options.step  # the last step may begin where only EOS is left
        self._own = runner.fuses
        call = SearchModel(model.model, extend(model), (model.layout(aligned(columns), self._own),))
        super().__init__([call], runner, limits, capacity, longest_source, columns)
        device = runner.device
        link = model.interleaving.link
        self._tie = None if link is None else tie(link)
        self.rows = Rows(capacity, room, self.options, model.model.special, device)
        self._longest = torch.zeros(capacity, dtype=torch.int64, device=device)
        self._permitted = permitted(self._forbidden, model.model.options.vocabulary)
        self._none = torch.zeros(capacity, dtype=torch.int64, device=device)  # nothing is ever drafted
        rows = self.rows
        lying = (self._caches[0], self._memories[0], *call.more)
        if self._own:
            self._extend = partial(runner.call, call.extend, rows.ids, rows.start, *lying)
        else:
            program = greedy_step(model, search.earliest, search.count_dropped)
            arguments = (program, rows.state, *lying, self._longest, self._forbidden, rows.anchors, rows.behind)
            self._whole_step = partial(runner.call, *arguments) if runner.records else runner.bound(*arguments)

    @property
    def buffers(self) -> list[Tensor]:
        """All that a step or an entrance writes."""
        return [*self.rows.buffers, self._longest, *super().buffers]

    def _open(self, slots: Tensor, longest: Tensor) -> None:
        self.rows.open(slots)
        self._longest.index_copy_(0, slots, longest)

    def drop(self, slot: int) -> None:
        """Give the sentence in this slot up."""
        self.rows.drop(slot)

    def step(self) -> Step:
        """One step of every live row."""
        if not self._recorded:
            self._recorded[0] = self._runner.record("greedy", self._step, self.buffers)
        found: Step = self._recorded[0]()
        return found

    def _step(self) -> Step:
        if self._own:
            committed, top = self._step_fused()
        else:
            committed, top = self._whole_step()
        if self.dedup:
            return self._closing(committed.active)
        none = self._none
        return Step(self.ticket, committed.active, committed.position, top, committed.written, none, none)

    def _step_fused(self) -> tuple[Committed, Tensor]:
        """The same by kernels of our own."""
        rows, search = self.rows, self.search

        def choose(logits: Tensor, first: int) -> Choice:
            start = rows.start + first if first else rows.start
            bounds = Bounds(self._permitted, start, self._longest, search.earliest, search.eos)
            found = summarise_fused(logits, bounds)
            assert found.top_logit is not None
            assert found.normaliser is not None
            return found.top, found.top_logit, found.normaliser

        tie = None if self._tie is None else partial(self._runner.call, self._tie)
        logits, factors = self._extend()
        top, logit, normaliser = in_rounds(logits, factors, self.options.h, tie, choose)
        return rows.commit_fused((top, logit, normaliser), search.count_dropped), top

    def _closing(self, active: Tensor) -> Step:
        """The sentences that end with this step are written whole, and nothing of the others."""
        rows = self.rows
        found = sentences_of(rows.words, rows.length, self.options, self.dedup, self.search.eos)
        columns = torch.arange(self.columns, device=active.device).expand_as(found.tokens)
        written = (columns <= found.lengths[:, None]) & (active & rows.done)[:, None]
        return Step(self.ticket, active, columns, found.tokens, written, self._none, self._none, when=found.steps)


class GreedySession(PooledSession[GreedyTable]):
    """One model, `capacity` rows."""

    @torch.inference_mode()
    def __init__(self, key: PoolKey, make: Callable[[int, int], GreedyTable]) -> None:
        super().__init__(key, make)
        self.portion = self.table.portion

    @torch.inference_mode()
    def admit(self, source: Source) -> list[int]:
        """Encode new sentences and open a row for each."""
        empty, tickets = self._slots.take(source.rows)
        self.calls += self.table.admit(source, empty, tickets)
        return tickets

    @torch.inference_mode()
    def advance(self) -> Step:
        """One step of every live row."""
        self.calls += 1
        return self.table.step()

    @torch.inference_mode()
    def take_finished(self) -> list[Finished]:
        """Read the flags of all rows, and the outputs of those that are done: one copy for all of it."""
        table, search = self.table, self.table.search
        seen = table.rows.look()
        done = seen.done
        ready = self._slots.ready(done) if True in done else []
        taken = []
        for row in ready:
            words, filled, total = seen.of(row)
            counted = filled if search.count_dropped else len(words) + 1
            score = total / _divisor(search.penalty, counted)
            tokens = sentence_of(words, table.options, table.dedup)
            taken.append(Finished(self._slots.release(row), [Hypothesis(tokens, score, total)]))
        return taken


@lru_cache(maxsize=4096)
def _divisor(penalty: LengthPenalty, counted: int) -> float:
    return float(penalty(torch.tensor(counted)))
