"""Candidates from whatever scores every word at every place: a model of another system, say. Knows no such model."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from longstride.contract import Program, Runner
from longstride.systems.lattice.candidates import Candidates, from_logits

AT_ONCE = 1 << 27
"""Scores that exist at once."""

PlaceScores = Callable[[Tensor, Tensor, int], Tensor]
"""(source [rows, longest], lengths [rows], columns) -> logits [rows, columns, vocabulary]"""


@final
class ScoredCandidates:
    """A function that scores words, and the runner that carries it out."""

    def __init__(self, scores: PlaceScores, vocabulary: int, runner: Runner) -> None:
        self._scores = scores
        self._vocabulary = vocabulary
        self._runner = runner
        self._program = Program("scored candidates", self._propose)

    def candidates(self, source: Tensor, lengths: Tensor, columns: int, k: int) -> Candidates:
        """The k likeliest words at each of the first `columns` places; see CandidateSource."""
        portion = max(1, AT_ONCE // (columns * self._vocabulary))
        found: list[Candidates] = [
            self._runner.call(self._program, *(both[first : first + portion] for both in (source, lengths)), columns, k)
            for first in range(0, len(source), portion)
        ]
        return Candidates(torch.cat([one.ids for one in found]), torch.cat([one.log_scores for one in found]))

    def _propose(self, source: Tensor, lengths: Tensor, columns: int, k: int) -> Candidates:
        return from_logits(self._scores(source, lengths, columns), k)
