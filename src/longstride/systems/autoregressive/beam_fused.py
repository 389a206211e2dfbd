"""What lies between two model calls of beam search in two kernels of our own, where steps are captured and hypotheses
share their pasts in a cache.

The tensor code of :mod:`longstride.search.beam` is their slow twin, and what runs everywhere else. Kernels are imported
when they are first needed, and compared with it before that.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from longstride.contract import Limits, Runner
from longstride.ops.kernels import why_not_here
from longstride.search.beam import BeamTable, Candidates
from longstride.search.length_penalty import LengthPenalty
from longstride.verification.kernels import permitted_ids, say_once

WIDEST = 16
"""Hypotheses a sentence: with more, sorting their candidates wants another kernel."""


def usable(runner: Runner, width: int) -> bool:
    """Whether to use them: where steps are captured, launching many kernels is what is left to save."""
    if not runner.records or runner.device.type != "cuda" or width > WIDEST:
        return False
    against = why_not(runner.device, runner.dtype)
    if against:
        say_once(f"The runtime {runner.name} does without kernels of our own between steps of a beam: {against}.")
    return not against


class OwnSearch:
    """The kernels, and what they keep beside a table of hypotheses."""

    def __init__(
        self, table: BeamTable, scores: Tensor, penalty: LengthPenalty, n_best: int, limits: Limits, vocabulary: int
    ) -> None:
        slots, width, columns = table.tokens.shape
        device = table.tokens.device
        self._shape = (slots, width, 2 * width)
        self._n_best = n_best
        self._min_length = limits.min_length
        self._permitted = permitted_ids(limits, vocabulary, device)
        # By length, looked up: one token more than there is room for, and the end.
        self._divisors = penalty(torch.arange(columns + 3, device=device))
        self.start = torch.zeros(slots * width, dtype=torch.int64, device=device)
        """[slots * width] where the next step begins; 0 where a search is done, as it does in a new one"""
        self.scores = scores
        """[slots, width] of the finished hypotheses, -inf where there is none; good where a search is done"""

    def candidates(self, logits: Tensor) -> Candidates:
        """The best continuations by logits [slots * width, vocabulary], the vocabulary side by side."""
        from longstride.systems.autoregressive import beam_kernels

        ids, gained, end = beam_kernels.candidates(
            logits, self._permitted, self.start, self._min_length, self._shape[-1]
        )
        return Candidates(ids.view(self._shape), gained.view(self._shape), end.view(self._shape[:2]))

    def advance(
        self, table: BeamTable, candidates: Candidates, last: Tensor, indirection: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Extend, finish, prune: :func:`longstride.search.beam.advance`, in place; last [slots, width] and the rows in
        which pasts lie, indirection [slots * width, slots of a cache], likewise.

        -> who took part [slots], the ids of sentences that ended [slots, columns] and which of these count
        """
        from longstride.systems.autoregressive import beam_kernels

        found = (candidates.ids, candidates.log_probabilities, candidates.end)
        told: tuple[Tensor, Tensor, Tensor] = beam_kernels.advance(
            found, self._divisors, table.buffers, last, self.start, indirection, self.scores, self._n_best
        )
        return told


# --- whether they may be used ----------------------------------------------------------------------------------------


@cache
def why_not(device: torch.device, dtype: torch.dtype) -> str:
    """What keeps the kernels from being used here, in a few words; empty where nothing does."""
    from longstride.systems.autoregressive.beam_check import differing

    def tried() -> str:
        wrong = differing(device, dtype)
        return f"its {wrong} differ from PyTorch's own" if wrong else ""

    return why_not_here(device, dtype, tried)
