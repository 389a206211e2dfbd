"""Tensors side by side whose rows belong together: what a search knows of every sentence. Knows no search."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

from torch import Tensor


@dataclass
class Rows:
    """A dataclass of tensors, each with a row for every sentence."""

    @property
    def buffers(self) -> list[Tensor]:
        """All its tensors."""
        return [getattr(self, field.name) for field in fields(self)]

    def select(self, rows: Tensor) -> Self:
        """Some sentences alone."""
        return type(self)(*(buffer[rows] for buffer in self.buffers))

    def become(self, other: Self) -> None:
        """Take another's values, in the tensors that are here."""
        for mine, new in zip(self.buffers, other.buffers, strict=True):
            mine.copy_(new)
