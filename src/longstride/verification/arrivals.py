"""New sentences on their way into a table: one small copy to the device brings all that is known of them."""

from __future__ import annotations

import torch
from torch import Tensor

from longstride.contract import Runner, Source

NUMBERS = 3
"""Beside the ids of a sentence: its length, its row and its ticket."""


class Arrivals:
    """A portion of sentences, in a tensor that never moves; places that are not needed hold the shortest one."""

    def __init__(self, portion: int, longest_source: int, runner: Runner) -> None:
        self.portion = portion
        self._longest = longest_source
        self._runner = runner
        self._all = torch.zeros(portion, longest_source + NUMBERS, dtype=torch.int64, device=runner.device)

    def send(self, source: Source, rows: list[int], tickets: list[int]) -> None:
        """Bring up to a portion of sentences, the rows that they are meant for and their tickets."""
        count, longest = source.rows, self._longest
        found = torch.zeros(self._all.shape, dtype=torch.int64)
        found[:, longest] = 1
        found[:count, : source.longest] = source.ids
        found[:count, longest:] = torch.stack([source.lengths, torch.tensor(rows), torch.tensor(tickets)], dim=1)
        self._runner.send(found, self._all)

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
