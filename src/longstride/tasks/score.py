"""What a quality score is: a name, a value and the signature that makes it comparable; the simplest scores.

Outputs can also be scored by source length: sorted by it and cut into bins of equally many sentences (Figure 3).
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longstride.contract import InputError, OptionError

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


class ExactMatch(Metric):
    """Outputs that equal their reference, or a line of it, but for white space at the ends, in percent."""

    name = "exact match"
    signature = "exact-match|lines|percent"

    def statistics(self, outputs: Sequence[str], references: Sequence[str]) -> Figures:
        """[sentences, 2]: right or not, and one."""
        check_pairs(outputs, references)
        right = [
            output.strip() in [line.strip() for line in reference.split("\n")]
            for output, reference in zip(outputs, references, strict=True)
        ]
        return np.stack([np.array(right, dtype=np.float64), np.ones(len(right))], axis=1)

    def value(self, summed: NDArray[Any]) -> float:
        """From 0 to 100."""
        return 100.0 * float(summed[0] / summed[1])


def repetition_rate(sentences: Sequence[Sequence[int]] | Sequence[Sequence[str]]) -> float:
    """Tokens that equal the one right before them, among all tokens of the corpus, in percent: a sign of independence.

    Correct text can repeat too ("that that"), so a reference's own rate is the floor to compare with. The paper on
    generalized aggressive decoding prints this ratio (its Table 9) without defining it; this is the usual definition.
    """
    tokens = sum(len(sentence) for sentence in sentences)
    repeats = sum(before == after for sentence in sentences for before, after in itertools.pairwise(sentence))
    return 100.0 * repeats / tokens if tokens else 0.0


def word_repetition(texts: Sequence[str]) -> Score:
    """The rate over words between white space of detokenized text."""
    return Score("repetition", repetition_rate([text.split() for text in texts]), "repetition|immediate|words|percent")


@dataclass(frozen=True)
class LengthBin:
    """The outputs for sources of about one length."""

    shortest: int
    longest: int
    """source tokens, EOS not counted"""
    sentences: int
    scores: tuple[Score, ...]


def length_bins(lengths: Sequence[int], bins: int) -> list[list[int]]:
    """The places of sentences, bin by bin, from short to long; the first may be larger by one."""
    if not 1 <= bins <= len(lengths):
        raise OptionError(f"Bins by length expect 1 to {len(lengths)} of them, one per sentence, found {bins}.")
    order = np.argsort(np.asarray(lengths), kind="stable")
    return [part.tolist() for part in np.array_split(order, bins)]


def score_by_length(
    lengths: Sequence[int],
    bins: int,
    outputs: Sequence[str],
    references: Sequence[str],
    metrics_of: Callable[[Sequence[int]], Sequence[Metric]],
) -> tuple[LengthBin, ...]:
    """Score each bin alone; `metrics_of` gives the metrics for the sentences at these places."""
    found = []
    for places in length_bins(lengths, bins):
        mine, wanted = ([lines[place] for place in places] for lines in (outputs, references))
        scores = tuple(metric.score(mine, wanted) for metric in metrics_of(places))
        found.append(LengthBin(lengths[places[0]], lengths[places[-1]], len(places), scores))
    return tuple(found)
