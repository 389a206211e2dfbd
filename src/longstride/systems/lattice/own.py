"""The scorer as a source of candidates: the best words by its own P(y_t | t, x), for whoever has no encoder output yet.

The decoder, which has one, proposes from it directly (`pipeline`); this is for measuring what such a lattice holds.
"""

from __future__ import annotations

from typing import final

from torch import Tensor

from longstride.contract import Program, Runner
from longstride.systems.lattice.candidates import Candidates, from_logits
from longstride.systems.lattice.model import Scorer
from longstride.systems.lattice.scoring import encode, unigrams


@final
class OwnCandidates:
    """A scorer and the runner that carries it out."""

    def __init__(self, model: Scorer, runner: Runner) -> None:
        self._model = model
        self._runner = runner
        self._program = Program("own candidates", self._propose)

    def candidates(self, source: Tensor, lengths: Tensor, columns: int, k: int) -> Candidates:
        """The k likeliest words at each of the first `columns` places; see CandidateSource."""
        found: Candidates = self._runner.call(self._program, source, lengths, columns, k)
        return found

    def _propose(self, source: Tensor, lengths: Tensor, columns: int, k: int) -> Candidates:
        encoded = encode(self._model, source, lengths, padded=True)
        return from_logits(unigrams(self._model, encoded, columns), k)
