"""The outputs of a table of rows that are written from left to right, each at its own pace. Tensors never move."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from longstride.contract import START, Finished, Hypothesis
from longstride.contract.slots import Slots

Fetch = Callable[..., list[Tensor]]
"""Tensors -> the same on the host, waiting for the device once"""


def as_they_are(*tensors: Tensor) -> list[Tensor]:
    """What fetching is where reading a tensor waits for it anyway."""
    return list(tensors)


class Outputs:
    """What each row has committed so far, on the device."""

    def __init__(self, rows: int, columns: int, device: torch.device) -> None:
        # Rows that are done are appended to as well, behind their end: a full one needs a column more.
        self._tokens = torch.zeros(rows, columns + 1, dtype=torch.int64, device=device)
        self.tokens = self._tokens[:, :columns]
        """[rows, columns] committed ids, EOS included; beyond a row's length, left-overs"""
        self.length = torch.zeros(rows, dtype=torch.int64, device=device)
        """[rows]"""
        self.newest = torch.full((rows,), START, dtype=torch.int64, device=device)
        """[rows] the last committed id, START where there is none; for who calls :meth:`close`"""
        self.done = torch.ones(rows, dtype=torch.bool, device=device)
        """[rows] ended, or never begun"""
        self.log_probability = torch.zeros(rows, dtype=torch.float64, device=device)
        """[rows] of all committed tokens"""
        self._steps = torch.arange(columns + 1, device=device)

    @property
    def buffers(self) -> list[Tensor]:
        """All that changes."""
        return [self._tokens, self.length, self.newest, self.done, self.log_probability]

    def open(self, rows: Tensor) -> None:
        """Begin anew in these rows."""
        self._tokens.index_fill_(0, rows, 0)
        self.length.index_fill_(0, rows, 0)
        self.newest.index_fill_(0, rows, START)
        self.done.index_fill_(0, rows, False)
        self.log_probability.index_fill_(0, rows, 0.0)

    def write(self, positions: Tensor, ids: Tensor, written: Tensor, log_probability: Tensor) -> None:
        """Commit, per row, the columns that are `written`: a run of ids [rows, step] from the row's length on."""
        kept = self.tokens.gather(1, positions)
        self.tokens.scatter_(1, positions, torch.where(written, ids, kept))
        self.length += written.sum(dim=1)
        # Not a product: what is not written may be -inf.
        self.log_probability += torch.where(written, log_probability, 0).sum(dim=1)

    def append(self, ids: Tensor, count: Tensor, written: Tensor, log_probability: Tensor) -> None:
        """Commit, per row, the first `count` [rows] of ids [rows, step]; `written` [rows, step] is True on these.

        The rest of them is written too, beyond the row's new length, where nobody looks: that takes no choosing.
        """
        places = self.length[:, None] + self._steps[: ids.shape[1]]
        self._tokens.scatter_(1, places, ids)
        self.length += count
        self.log_probability += torch.where(written, log_probability, 0).sum(dim=1, dtype=torch.float64)

    def close(self, newest: Tensor, ended: Tensor) -> None:
        """After :meth:`append`: the last id of each row [rows], and whether it ends the row. Done rows stay done."""
        self.newest.copy_(newest)
        self.done |= ended

    def take_finished(self, slots: Slots, done: list[bool] | None = None, fetch: Fetch = as_they_are) -> list[Finished]:
        """The outputs of the rows that are done, whose slots become free; `done` where the host knows already."""
        rows = slots.ready(fetch(self.done)[0].tolist() if done is None else done)
        if not rows:
            return []
        tokens, lengths, scores = fetch(self.tokens, self.length, self.log_probability)
        taken = []
        for row in rows:
            score = float(scores[row])
            ids = tokens[row, : int(lengths[row]) - 1].tolist()
            taken.append(Finished(slots.release(row), [Hypothesis(ids, score, score)]))
        return taken
