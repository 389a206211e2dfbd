"""How long an output will be, before a word of it is known: least squares on the source length, and a window around it.

For systems that write all words at once and so must settle the length first. Knows no model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from longstride.contract import Limits, option
from longstride.contract.options import Options

LEAST_SPREAD = 0.25
"""In words; a task whose lengths are all but certain has none to speak of."""


@dataclass(frozen=True)
class LengthRegression(Options):
    """Target words ≈ slope · source words + intercept; the end-of-sentence id is counted on neither side."""

    slope: float = option(1.0, "Target words per source word.", least=-1000, most=1000)
    intercept: float = option(0.0, "Target words of an empty source.", least=-(10**6), most=10**6)
    spread: float | None = option(
        None, "Standard deviation of what the line leaves over (none: not known).", least=0, most=10**6
    )

    @staticmethod
    def fit(source_words: npt.NDArray[np.int64], target_words: npt.NDArray[np.int64]) -> LengthRegression:
        """The line of least squares; through the mean where all sources are equally long. Both: [pairs]."""
        source, target = source_words.astype(np.float64), target_words.astype(np.float64)
        spread = source - source.mean()
        variance = float((spread * spread).sum())
        if variance == 0:
            return LengthRegression(float(target.mean() / max(source.mean(), 1.0)), 0.0, float(target.std()))
        slope = float((spread * (target - target.mean())).sum() / variance)
        intercept = float(target.mean() - slope * source.mean())
        left_over = target - (slope * source + intercept)
        return LengthRegression(slope, intercept, float(np.sqrt((left_over * left_over).mean())))

    def words(self, source_words: Tensor) -> Tensor:
        """[...] expected target words, not rounded, at least one."""
        return (source_words.double() * self.slope + self.intercept).clamp(min=1.0)

    def predict(self, lengths: Tensor) -> Tensor:
        """[rows] int64 target lengths for source lengths [rows], EOS counted on both sides."""
        return self.words(lengths - 1).round().long() + 1

    def log_odds(self, lengths: Tensor, tried: Tensor) -> Tensor:
        """[rows, n] float64: how likely target lengths [rows, n] are for source lengths [rows], EOS counted on both.

        The log-density of a normal distribution around the line, against that of the expected length; 0 throughout
        where the spread is not known.
        """
        if self.spread is None:
            return torch.zeros(tried.shape, dtype=torch.float64, device=tried.device)
        away = (tried - 1 - self.words(lengths - 1)[:, None]) / max(self.spread, LEAST_SPREAD)
        return -away * away / 2


@dataclass(frozen=True)
class Window:
    """Per sentence, the lengths it may have, EOS counted: at least 2, since one word is the least there is."""

    shortest: Tensor
    """[rows] int64"""
    longest: Tensor
    """[rows] int64"""

    @staticmethod
    def around(
        predicted: Tensor, spread: int, limits: Limits, source_lengths: Tensor, positions: int = 1 << 30
    ) -> Window:
        """Lengths within `spread` of the predicted ones [rows], moved inside the limits and the model's positions."""
        most = (limits.longest_outputs(source_lengths) + 1).clamp(max=positions)
        least = most.clamp(max=max(2, limits.min_length + 1))
        centre = torch.minimum(torch.maximum(predicted, least), most)
        return Window(torch.maximum(centre - spread, least), torch.minimum(centre + spread, most))

    def to(self, device: torch.device) -> Window:
        """The same on another device."""
        return Window(self.shortest.to(device), self.longest.to(device))

    def slice(self, first: int, last: int) -> Window:
        """The sentences `first` to `last` (exclusive)."""
        return Window(self.shortest[first:last], self.longest[first:last])
