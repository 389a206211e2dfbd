"""One reduced vocabulary for the whole sentence, the same at every place: the alternative that the paper improves on.

L'Hostis et al. (2016) join the likeliest translations of every source word. So that K means the same in every
construction, the K words kept are those of the largest mean P(y | x_a) over the source words.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from longstride.systems.lattice.candidates import Candidates
from longstride.systems.lattice.tables import Tables


@final
class SharedVocabulary:
    """Candidates of a sentence rather than of a place, from the same tables."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def candidates(self, source: Tensor, lengths: Tensor, columns: int, k: int) -> Candidates:
        """The k likeliest words of the sentence, in every column; see CandidateSource."""
        words = (lengths - 1)[:, None, None]
        inside = torch.arange(source.shape[1], device=source.device) < words
        any_distance = source[:, None, :] * self._tables.options.counted.slots
        found = self._tables.best(any_distance, inside.double() / words.clamp(min=1), k)
        shape = (len(source), columns, k)
        return Candidates(found.ids.expand(shape), found.log_scores.expand(shape))
