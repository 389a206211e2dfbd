"""The outputs of a table of rows that are written from left to right, each at its own pace."""

from __future__ import annotations

import torch
from torch import Tensor

from longstride.contract import Finished, Hypothesis
from longstride.contract.slots import Slots


class Outputs:
    """What each row has committed so far, on the device."""

    def __init__(self, rows: int, columns: int, device: torch.device) -> None:
        self.tokens = torch.zeros(rows, columns, dtype=torch.int64, device=device)
        """[rows, columns] committed ids, EOS included; beyond a row's length, left-overs"""
        self.length = torch.zeros(rows, dtype=torch.int64, device=device)
        """[rows]"""
        self.done = torch.ones(rows, dtype=torch.bool, device=device)
        """[rows] ended, or never begun"""
        self.log_probability = torch.zeros(rows, dtype=torch.float64, device=device)
        """[rows] of all committed tokens"""

    def open(self, rows: Tensor) -> None:
        """Begin anew in these rows."""
        self.tokens[rows] = 0
        self.length[rows] = 0
        self.done[rows] = False
        self.log_probability[rows] = 0.0

    def write(self, positions: Tensor, ids: Tensor, written: Tensor, log_probability: Tensor) -> None:
        """Commit, per row, the columns that are `written`: a run of ids [rows, step] from the row's length on."""
        kept = self.tokens.gather(1, positions)
        self.tokens = self.tokens.scatter(1, positions, torch.where(written, ids, kept))
        self.length = self.length + written.sum(dim=1)
        # Not a product: what is not written may be -inf.
        self.log_probability = self.log_probability + torch.where(written, log_probability, 0).sum(dim=1)

    def take_finished(self, slots: Slots) -> list[Finished]:
        """Read the flags of all rows, and the outputs of those that are done, whose slots become free."""
        rows = slots.ready(self.done.tolist())
        if not rows:
            return []
        index = torch.tensor(rows, device=self.done.device)
        tokens, lengths = self.tokens[index].tolist(), self.length[index].tolist()
        scores = self.log_probability[index].tolist()
        return [
            Finished(slots.release(row), [Hypothesis(ids[: length - 1], score, score)])
            for row, ids, length, score in zip(rows, tokens, lengths, scores, strict=True)
        ]
