"""An iteration for a table of a single row, where the host may look at numbers: plain numbers instead of tensor code.

On a processor a step of a small model takes two milliseconds, and thirty operations on tensors of one or ten elements
a few tenths more. Here all that is small lies in numpy's view of tensors that are made once; what a runner bound stays
bound. What it does is :meth:`longstride.verification.table.Table.iterate` for many rows, and tests hold it to that.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from longstride.contract import EOS
from longstride.verification.drafting import Drafter, Proposal, View
from longstride.verification.judged import Judged
from longstride.verification.outputs import Outputs
from longstride.verification.settling import Iteration

BindJudge = Callable[[Tensor, Tensor, Tensor], Callable[[], Judged]]
"""(ids [1, step], count [1], start [1], which stay where they are) -> what says what comes of them"""

BindDraft = Callable[[View, Tensor], Callable[[], Tensor] | None]
"""(what a drafter looks at, window [1]) -> what drafts ids [1, block], where the drafter need not be asked"""


class LoneRow:
    """The desk of one row, for drafts of one size: it writes what it gives over in the next iteration."""

    def __init__(self, outputs: Outputs, block: int, bind_judge: BindJudge, bind_draft: BindDraft) -> None:
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
        self._judge = bind_judge(self._ids, self._count, self._start)
        view = View(outputs.tokens, self._start, outputs.done)
        self._drafts = bind_draft(view, self._window) if block else None

    def iterate(self, drafter: Drafter, state: object, window: int, nothing: Proposal) -> Iteration:
        """Draft, verify, commit. `nothing` is the proposal where drafting is left out."""
        outputs, block = self._outputs, self._block
        ids, chosen, positions, start, count, wide, drafted, accepted, active, written = self._seen
        tokens, length, newest, done, log_probability = self._kept
        live, before = not done[0], int(length[0])
        active[0] = live
        start[0] = before if live else 0
        ids[0, 0] = newest[0]
        if self._drafts is not None:
            wide[0] = window
            ids[0, 1:] = self._drafts().numpy()[0]
            count[0] = block
        else:
            if block or not drafter.calls:
                proposal = drafter.propose(state, View(outputs.tokens, self._start, outputs.done, window), block)
            else:
                proposal = nothing
            if block:
                ids[0, 1:] = proposal.ids.numpy()[0]
            count[0] = proposal.count.numpy()[0]
        positions[0] = self._steps + start[0]
        found = self._judge()

        committed, stood, last, *best = found.numbers.tolist()[0]
        taken = committed if live else 0
        chosen[0] = best
        written[0] = self._steps < taken
        tokens[0, before : before + block + 1] = best  # beyond the row's new length nobody looks
        length[0] = before + taken
        log_probability[0] += sum(found.log_probability.tolist()[0][:taken])
        newest[0] = last
        done[0] |= last == EOS
        drafted[0] = count[0] if live or not block else 0
        accepted[0] = stood if live and block else 0
        if drafter.ahead is not None:
            drafter.learn(state, found.told)
        elif drafter.observes:
            view = View(outputs.tokens, outputs.length, outputs.done, window)
            drafter.observe(state, self._accepted, view, found.told)
        return self._iteration
