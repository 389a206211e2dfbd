"""An iteration for a table of a single row, where the host may look at numbers: plain numbers instead of tensor code.

On a processor a step of a small model takes two milliseconds, and thirty operations on tensors of one or ten elements
a few tenths more. Here all that is small lies in numpy's view of tensors that are made once; what a runner bound stays
bound. What it does is :meth:`longstride.verification.table.Table.iterate` for many rows, and tests hold it to that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from longstride.contract import EOS
from longstride.verification.at_once import Attempt
from longstride.verification.drafting import Drafter, Proposal, View
from longstride.verification.judged import Judged
from longstride.verification.outputs import Outputs
from longstride.verification.settling import Iteration


@dataclass(frozen=True)
class Desk:
    """What an iteration reads of a row beside its table, in tensors that stay where they are."""

    ids: Tensor
    """[1, step] the newest token and the draft"""
    count: Tensor
    """[1] how many of the draft are meant"""
    start: Tensor
    """[1] how many tokens are committed"""
    window: Tensor
    """[1] how many of these came since the last draft, at most"""

    @property
    def newest(self) -> Tensor:
        """[1, 1]"""
        return self.ids[:, :1]


@dataclass(frozen=True)
class Attempts:
    """What carries out an iteration on a desk again and again: one of the two."""

    whole: Callable[[], Attempt] | None = None
    """drafts, too"""
    judge: Callable[[], Judged] | None = None
    """says what comes of a draft that lies there"""


class LoneRow:
    """The desk of one row, for drafts of one size: it writes what it gives over in the next iteration."""

    def __init__(self, outputs: Outputs, block: int, bind: Callable[[Desk], Attempts]) -> None:
        self._outputs, self._block = outputs, block
        step = block + 1
        self._ids, self._chosen, self._positions = (torch.zeros(1, step, dtype=torch.int64) for _ in range(3))
        self._start, self._count, self._window = (torch.zeros(1, dtype=torch.int64) for _ in range(3))
        self._drafted, self._accepted = outputs.drafted, outputs.accepted
        self._active, self._written = torch.zeros(1, dtype=torch.bool), torch.zeros(1, step, dtype=torch.bool)
        self._draft = self._ids[:, 1:]
        self._steps = torch.arange(step).numpy()
        self._seen = tuple(
            tensor.numpy()
            for tensor in (
                self._ids,
                self._chosen,
                self._positions,
                self._start,
                self._count,
                self._window,
                self._drafted,
                self._accepted,
                self._active,
                self._written,
            )
        )
        kept = (outputs.whole, outputs.length, outputs.newest, outputs.done, outputs.log_probability)
        self._kept = tuple(tensor.numpy() for tensor in kept)
        self._iteration = Iteration(
            self._active, self._positions, self._chosen, self._written, self._drafted, self._accepted, self._draft
        )
        self._attempts = bind(Desk(self._ids, self._count, self._start, self._window))
        self._last: Attempt | None = None  # what came of the last attempt, and the numbers in it:
        self._found: tuple[Any, Any, Any] = (None, None, None)

    @property
    def alone(self) -> bool:
        """Whether :meth:`again` and :meth:`at_once` may be asked: one call is all that an iteration takes."""
        return self._attempts.whole is not None

    def again(self) -> Iteration:
        """An iteration like the last, for who always drafts: the tokens since the last draft are what came of it."""
        accepted, length = self._seen[7], self._kept[1]
        return self.at_once(int(accepted[0]) + 1 if length[0] else 1)

    def iterate(self, drafter: Drafter, state: object, window: int, nothing: Proposal) -> Iteration:
        """Draft, verify, commit. `nothing` is the proposal where drafting is left out."""
        if self._attempts.whole is not None:
            return self.at_once(window)
        assert self._attempts.judge is not None
        outputs, block = self._outputs, self._block
        ids, count = self._seen[0], self._seen[4]
        self._begin()
        proposal = nothing
        if block or not drafter.calls:
            proposal = drafter.propose(state, View(outputs.tokens, self._start, outputs.done, window), block)
        if block:
            ids[0, 1:] = proposal.ids.numpy()[0]
        count[0] = proposal.count.numpy()[0]
        found = self._attempts.judge()
        self._end(found.numbers.tolist()[0], found.log_probability.tolist()[0])
        if drafter.ahead is not None:
            drafter.learn(state, found.told) if block else drafter.learn_nothing(state)
        elif drafter.observes:
            view = View(outputs.tokens, outputs.length, outputs.done, window, newest=outputs.newest)
            drafter.observe(state, self._accepted, view, found.told)
        return self._iteration

    def at_once(self, window: int) -> Iteration:
        """Draft, verify, commit, in one call; so many tokens at most came since the last draft."""
        ids, count, wide = self._seen[0], self._seen[4], self._seen[5]
        self._begin()
        count[0], wide[0] = self._block, window
        assert self._attempts.whole is not None
        attempt = self._attempts.whole()
        if attempt is not self._last:  # a runner may give the same tensors each time
            self._last, judged = attempt, attempt.judged
            self._found = (attempt.draft.numpy()[0], judged.numbers.numpy()[0], judged.log_probability.numpy()[0])
        draft, numbers, scores = self._found
        ids[0, 1:] = draft
        self._end(numbers.tolist(), scores.tolist())
        return self._iteration

    def _begin(self) -> None:
        """Lay out what an iteration reads."""
        ids, _, positions, start, _, _, _, _, active, _ = self._seen
        _, length, newest, done, _ = self._kept
        active[0] = live = not done[0]
        start[0] = first = length[0] if live else 0
        ids[0, 0] = newest[0]
        positions[0] = self._steps + first

    def _end(self, numbers: list[int], scores: list[float]) -> None:
        """Commit; numbers and scores as in :class:`~longstride.verification.judged.Judged`."""
        block = self._block
        _, chosen, _, _, count, _, drafted, accepted, active, written = self._seen
        tokens, length, newest, done, log_probability = self._kept
        live, before = bool(active[0]), int(length[0])
        committed, stood, last, *best = numbers
        taken = committed if live else 0
        chosen[0] = best
        written[0] = self._steps < taken
        tokens[0, before : before + block + 1] = best  # beyond the row's new length nobody looks
        length[0] = before + taken
        log_probability[0] += sum(scores[:taken])
        newest[0] = last
        done[0] |= last == EOS
        drafted[0] = count[0] if live or not block else 0
        accepted[0] = stood if live and block else 0
