"""Outputs that begin with what somebody else has chosen: a table's prefixes, and what they make of a step's logits.

A slot's token hangs on its position alone as far as a prefix goes; right behind it some ids may not stand, so that what
was prescribed is not made longer. So a draft, chain or tree, is judged under a prefix as under any other limit, and
the output is what greedy search gives under it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longstride.contract import Prefixes
from longstride.verification.acceptance import FORBIDDEN


@dataclass(frozen=True)
class TablePrefixes:
    """Those of all rows of a table, in tensors that never move."""

    ids: Tensor
    """[rows, columns]"""
    lengths: Tensor
    """[rows] 0: nothing is prescribed"""
    never_next: Tensor
    """[vocabulary] bool"""

    @staticmethod
    def empty(rows: int, columns: int, vocabulary: int, device: torch.device) -> TablePrefixes:
        """Nothing is prescribed."""
        return TablePrefixes(
            torch.zeros(rows, columns, dtype=torch.int64, device=device),
            torch.zeros(rows, dtype=torch.int64, device=device),
            torch.zeros(vocabulary, dtype=torch.bool, device=device),
        )

    @property
    def buffers(self) -> list[Tensor]:
        """All of it."""
        return [self.ids, self.lengths, self.never_next]

    @torch.inference_mode()
    def put(self, rows: list[int], given: Prefixes | None) -> None:
        """Of new sentences in these rows; what is beyond the table's room is beyond the longest output, too."""
        device = self.ids.device
        where = torch.tensor(rows, device=device)
        if given is None:
            self.lengths[where] = 0
            return
        width = min(given.ids.shape[1], self.ids.shape[1])
        self.ids[where, :width] = given.ids[:, :width].to(device)
        self.lengths[where] = given.lengths.clamp(max=width).to(device)
        if given.never_next is None:
            self.never_next.zero_()  # what an earlier session was told may stand here
        else:
            self.never_next.copy_(given.never_next)

    def select(self, rows: Tensor) -> TablePrefixes:
        """Of some rows alone."""
        return TablePrefixes(self.ids[rows], self.lengths[rows], self.never_next)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """For output positions [rows, slots]: what is prescribed there, and whether anything is."""
        ids = self.ids.gather(1, positions.clamp(max=self.ids.shape[1] - 1))
        return ids, positions < self.lengths[:, None]

    def allowed(self, logits: Tensor, positions: Tensor) -> Tensor:
        """logits [rows, slots, vocabulary] for these positions, without what may not stand right behind a prefix."""
        behind = (positions == self.lengths[:, None]) & (self.lengths[:, None] > 0)
        return logits.masked_fill(behind[..., None] & self.never_next, FORBIDDEN)
