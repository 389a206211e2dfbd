"""Beam search with drafts: the steps of the beam, with fewer model calls. On processors.

A call reads the newest token of every live hypothesis and, behind it, a draft of its own, a chain or a tree. The steps
are those of the beam, each by what was read where its hypotheses stand: as long as all of them have been read, a step
needs no call. So a draft changes nothing but how many calls there are.

Every hypothesis has a row: its past, its source and what the drafter remembers. Rows follow their hypotheses before a
call, not in every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longstride.contract import Feeds, Limits, Program, Runner
from longstride.engine.outputs import Rows
from longstride.engine.pool import InputStaging
from longstride.nn import programs
from longstride.nn.transformer import Transformer
from longstride.search.beam import Search
from longstride.search.beam_table import BeamTable
from longstride.search.candidates import NAMES, Best, best_words, with_best_words
from longstride.search.continuations import DEAD, Array, SlotScores, StepScores
from longstride.search.table import SearchModel
from longstride.verification import step_programs
from longstride.verification.drafting import Drafter, Proposal
from longstride.verification.step import Acceptance, Batch, VerifyStep

UNREAD = -1
"""In place of a slot: no call has read what stands there."""


class DraftedBeamTable(BeamTable):
    """Sentences of `search.width` hypotheses, each with a draft of `drafter.block` tokens in every model call."""

    def __init__(
        self,
        model: Transformer,
        drafter: Drafter,
        runner: Runner,
        search: Search,
        limits: Limits,
        capacity: int,
        longest_source: int,
        columns: int,
    ) -> None:
        assert not drafter.observes, "nobody tells it what became of its drafts"
        super().__init__(
            [SearchModel(model, programs.extend(model))], runner, search, limits, capacity, longest_source, columns
        )
        self.steady = True
        rows, device, width = capacity * search.width, runner.device, search.width
        room = columns + drafter.block  # a draft may begin at the last position
        self._memories, self._caches = [model.new_memory(rows, longest_source)], [model.new_cache(rows, room)]
        self._caches[0].prepare(room)
        self._drafter = drafter
        self._rows_of = torch.arange(rows, device=device).view(capacity, width)
        number = torch.zeros(rows, dtype=torch.int64, device=device)
        ids = torch.zeros(rows, room, dtype=torch.int64, device=device)
        told = Rows(ids, number, number.clone(), number.bool(), number.double(), number.clone(), number.clone())
        self._batch = Batch(
            told,
            number.clone(),
            self._forbidden,
            torch.ones(1, dtype=torch.int64),
            self._caches[0],
            self._memories[0],
            drafter.begin(rows, longest_source, room, device),
        )
        step = VerifyStep(programs.verify(model), drafter, Acceptance(), limits, model.special)
        reading = step_programs.reading(step, drafter.block, drafts=True)
        self._reading = with_draft(reading, model.options.vocabulary, width, search.eos)
        self._bound = runner.bound(self._reading, self._no_words, self._batch) if runner.binds else None
        self._read: list[Array] = []  # ids and log-probabilities of the best words, and EOS's, of every row and slot
        self._children: list[dict[tuple[int, int], int]] = [{} for _ in range(rows)]  # (slot, token) -> slot
        self._parents: list[list[int]] = [[]] * rows  # of each slot behind the first
        own = np.arange(rows)
        self._row, self._slot = own.copy(), np.full(rows, UNREAD)  # where each hypothesis was read
        self._before = np.zeros(rows, dtype=np.int64)  # and in which slot of that row the token before its newest
        self._called = np.zeros(capacity, dtype=np.int64)  # how long each sentence's hypotheses were in the last call

    # --- new sentences -----------------------------------------------------------------------------------------------

    def _enter(self, staging: InputStaging, count: int) -> None:
        slots, width = staging.rows[:count], self._search.width
        memory = self._runner.call(self._encode[0], staging.ids, staging.lengths)
        first = self._rows_of[slots, 0]
        self._memories[0].put(first, memory)
        state, drafter = self._batch.drafter, self._drafter
        drafter.admit(state, first, staging.source(count), memory)
        # What is made of a sentence is the same for all its rows.
        kept = [(one, 1 if one.dim() == 5 else 0) for one in self._memories[0].buffers] + drafter.per_sentence(state)
        rows, others = self._rows_of[slots], first[:, None].expand(-1, width)
        for tensor, dim in kept:
            tensor.index_copy_(dim, rows[:, 1:].flatten(), tensor.index_select(dim, others[:, 1:].flatten()))
        self.ticket.index_copy_(0, slots, staging.tickets[:count])
        self._open(slots, self._longest_of[staging.lengths[:count]])
        self._slot[rows.flatten().numpy()], self._called[slots.numpy()] = UNREAD, 0

    # --- a step ------------------------------------------------------------------------------------------------------

    def _score(self, span: int) -> StepScores:
        """By what was read where the hypotheses stand, after a call if some of them stand elsewhere."""
        live = ((self.state.live > DEAD) & ~self.state.done[:, None]).reshape(-1)
        unread = not self._read or bool((self._slot[live] == UNREAD).any())  # nothing: all that came were given up
        self.calls = 1 + self._drafter.calls if unread else 0
        if unread:
            self._call(live)
        shape = (*self.state.live.shape, 1)
        at = self._row, self._slot.clip(0)
        ids, words, end = (one[at].reshape(*shape, *one.shape[2:]) for one in self._read)
        return SlotScores(ids, words, end)

    def _call(self, live: Array) -> None:
        """Read all live hypotheses [rows] with drafts behind them."""
        state, told, width = self.state, self._batch.rows, self._search.width
        self._gather(live)
        window = (state.length - self._called)[~state.done].max(initial=1)
        told.tokens.numpy()[:, : self.columns] = state.words.reshape(-1, self.columns)
        told.length.numpy()[:] = state.length.repeat(width)
        told.newest.numpy()[:] = self._last.view(-1).numpy()
        told.done.numpy()[:] = ~live
        self._batch.longest.numpy()[:] = state.longest.repeat(width)
        batch_window = self._batch.window
        assert isinstance(batch_window, Tensor)
        batch_window[0] = int(window)
        if self._bound is not None:
            *found, draft = self._bound()
        else:
            *found, draft = self._runner.call(self._reading, self._no_words, self._batch)
        self._read = [one.numpy() for one in found]
        self._learn(draft)
        self._called = state.length.copy()
        self._row, self._slot = np.arange(len(live)), np.zeros(len(live), dtype=np.int64)

    def _learn(self, draft: Proposal) -> None:
        """Which tokens were read behind which."""
        ids, counts = draft.ids.tolist(), draft.count.tolist()
        chain = list(range(draft.ids.shape[1]))
        parents = [chain] * len(ids) if draft.parents is None else draft.parents.tolist()
        self._parents = parents
        for children, tokens, above, count in zip(self._children, ids, parents, counts, strict=True):
            children.clear()
            for slot in range(count):
                children.setdefault((above[slot], tokens[slot]), slot + 1)

    def _follow(self, rows: Array, start: Tensor, span: int) -> None:
        """Hypotheses come from rows [rows] now; whether what they are was read."""
        self._row, self._before = self._row[rows], self._slot[rows]
        tokens = self._last.view(-1).tolist()
        places = zip(self._row.tolist(), self._before.tolist(), tokens, strict=True)
        self._slot = np.array([self._children[row].get((slot, token), UNREAD) for row, slot, token in places])

    def _gather(self, live: Array) -> None:
        """Rows get the pasts of their hypotheses, from where the last call has put them."""
        width = self._search.width
        for sentence, (called, length) in enumerate(
            zip(self._called.tolist(), self.state.length.tolist(), strict=True)
        ):
            if length <= called:  # it has just begun, or it is over
                continue
            rows = [row for row in range(sentence * width, (sentence + 1) * width) if live[row]]
            here = self._row[rows].tolist()
            paths = [self._path(row, int(self._before[to])) for row, to in zip(here, rows, strict=True)]
            there = [to for to, row in zip(rows, here, strict=True) if to != row]
            first = 0 if there else called + 1
            past = list(range(first, called + 1))
            slots = [[*past, *(called + slot for slot in path)] for path in paths]
            if slots and slots[0]:
                self._caches[0].follow(rows, here, slots, first)
            if there:
                self._drafter.follow(self._batch.drafter, there, [int(self._row[to]) for to in there], called)

    def _path(self, row: int, slot: int) -> list[int]:
        """The slots of the drafted tokens that lead to this one, itself counted."""
        path: list[int] = []
        while slot > 0:
            path.append(slot)
            slot = self._parents[row][slot - 1]
        return path[::-1]


def with_draft(reading: Program, vocabulary: int, count: int, eos: int) -> Program:
    """(no_words [n], batch) -> the best words by what is read [rows, step, ...], and the draft"""

    def function(no_words: Tensor, batch: Batch) -> tuple[Any, ...]:
        draft, logits, _ = reading.function(batch)
        found: Best = best_words(logits, no_words, count, eos)
        return (*found, draft)

    made = with_best_words(reading, vocabulary, count, eos)
    if made.graph is None or reading.graph is None:
        return Program(made.name, function)
    spec, read = made.graph, reading.graph
    beside = {name: value for name, value in read.outputs.items() if name.startswith("proposed")}
    outputs = {**spec.outputs, **beside}

    def record(builder: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        found = spec.record(builder, given)
        return {name: found[name] for name in (*outputs, *spec.state)}

    def result(found: Mapping[str, Tensor], fed: Feeds) -> tuple[Any, ...]:
        proposed = (found.get(name) for name in ("proposed", "proposed_count", "proposed_parents"))
        return (*(found[name] for name in NAMES), Proposal(*proposed))  # type: ignore[arg-type]

    return Program(made.name, function, replace(spec, outputs=outputs, record=record, result=result))
