"""Position embeddings. Positions are explicit integers; negative ones serve orders that count from the end."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride.contract import OptionError


def sinusoid(positions: Tensor, width: int) -> Tensor:
    """[...] integers -> [..., width] float64: sines in the first half, cosines in the second, rates 10000^(-2i/width).

    This is Marian's layout. A negative position has the sines' signs flipped and the same cosines.
    """
    if positions.is_meta:  # there is only a shape, and for sums of it PyTorch would import its compiler
        return torch.empty(*positions.shape, 2 * len(range(0, width, 2)), dtype=torch.float64, device=positions.device)
    rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64, device=positions.device) / width)
    angles = positions.to(torch.float64)[..., None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class SinusoidalPositions(nn.Module):
    """A table of sinusoids for positions -longest to longest; holds no weights."""

    table: Tensor

    def __init__(self, width: int, longest: int) -> None:
        super().__init__()
        self.longest = longest
        table = torch.empty(2 * longest + 1, width)
        if table.device.type != "meta":  # where shapes alone are asked for, arithmetic would import PyTorch's compiler
            table = sinusoid(torch.arange(-longest, longest + 1), width).to(table.dtype)
        self.register_buffer("table", table, persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """[...] -> [..., width]"""
        return F.embedding(positions + self.longest, self.table)

    @property
    def rows(self) -> tuple[Tensor, int]:
        """[positions, width] all of them, and which row is position 0's"""
        return self.table, self.longest


class LearnedPositions(nn.Module):
    """A trained vector for each position from 0 to longest - 1."""

    def __init__(self, width: int, longest: int) -> None:
        super().__init__()
        self.longest = longest
        self.weight = nn.Parameter(torch.randn(longest, width) * width**-0.5)

    def forward(self, positions: Tensor) -> Tensor:
        """[...] -> [..., width]"""
        return F.embedding(positions, self.weight)

    @property
    def rows(self) -> tuple[Tensor, int]:
        """[positions, width] all of them, and which row is position 0's"""
        return self.weight, 0


def make_positions(kind: str, width: int, longest: int) -> SinusoidalPositions | LearnedPositions:
    """The position embedding of a kind named in the options."""
    if kind == "sinusoidal":
        return SinusoidalPositions(width, longest)
    if kind == "learned":
        return LearnedPositions(width, longest)
    raise OptionError(f"positions expects sinusoidal or learned, found {kind!r}.")
