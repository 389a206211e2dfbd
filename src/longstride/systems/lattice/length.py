"""How long a translation will be: ordinary least squares of target on source length. Knows no window around it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from longstride.contract import option


@dataclass(frozen=True)
class LengthRegression:
    """Target words ≈ slope · source words + intercept; the end-of-sentence id is counted on neither side."""

    slope: float = option(1.0, "Target words per source word.")
    intercept: float = option(0.0, "Target words of an empty source.")

    @staticmethod
    def fit(source_words: npt.NDArray[np.int64], target_words: npt.NDArray[np.int64]) -> LengthRegression:
        """The line of least squares; through the mean where all sources are equally long. Both: [pairs]."""
        source, target = source_words.astype(np.float64), target_words.astype(np.float64)
        spread = source - source.mean()
        variance = float((spread * spread).sum())
        if variance == 0:
            return LengthRegression(float(target.mean() / max(source.mean(), 1.0)), 0.0)
        slope = float((spread * (target - target.mean())).sum() / variance)
        return LengthRegression(slope, float(target.mean() - slope * source.mean()))

    def words(self, source_words: Tensor) -> Tensor:
        """[...] expected target words, not rounded, at least one."""
        return (source_words.double() * self.slope + self.intercept).clamp(min=1.0)

    def predict(self, lengths: Tensor) -> Tensor:
        """[rows] int64 target lengths for source lengths [rows], EOS counted on both sides."""
        return self.words(lengths - 1).round().long() + 1
