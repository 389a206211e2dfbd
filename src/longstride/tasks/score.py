"""What a quality score is: a name, a value and the signature that makes it comparable. Knows no particular metric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longstride.contract import InputError

Figures = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """A score that says how it was computed; two values may be compared only where their signatures are equal."""

    name: str
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} ({self.signature})"


class Metric(ABC):
    """A corpus score that depends on a sum over sentences only, so that a resampled corpus costs one matrix product."""

    name: str

    @property
    @abstractmethod
    def signature(self) -> str:
        """All that could change the value, the version of the scorer included."""

    @abstractmethod
    def statistics(self, outputs: Sequence[str], references: Sequence[str]) -> Figures:
        """Per sentence what the score needs to know of it: [sentences, figures]."""

    @abstractmethod
    def value(self, summed: NDArray[Any]) -> float:
        """The score of a corpus whose statistics add up to `summed` [figures]."""

    def score(self, outputs: Sequence[str], references: Sequence[str]) -> Score:
        """The score of a whole corpus."""
        return Score(self.name, self.value(self.statistics(outputs, references).sum(axis=0)), self.signature)


def check_pairs(outputs: Sequence[str], references: Sequence[str]) -> None:
    """Refuse outputs and references that cannot be scored against each other."""
    if len(outputs) != len(references):
        raise InputError(
            f"Expected one reference per output, found {len(outputs)} outputs, {len(references)} references."
        )
    if not outputs:
        raise InputError("Expected at least one sentence to score, found none.")
