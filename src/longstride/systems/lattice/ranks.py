"""What the search changed: where the words it chose stood before it (the paper's Figure 2).

The paper ranks "using edge scores only" and says no more. Here a word is ranked among the candidates of its column by
the best edge that leads to it from any candidate before, which is what a choice made without search could go by; or by
what the candidates were chosen by.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from longstride.systems.lattice.window import Lattice


def ranks(lattice: Lattice, states: Tensor, by: Literal["edges", "candidates"] = "edges") -> Tensor:
    """[rows, columns] the rank, from 1, of the word that a path [rows, columns] chose; 0 where no word stands."""
    words = lattice.states - 2
    scores = lattice.log_scores if by == "candidates" else _best_edges(lattice)
    is_word = states < words
    chosen = scores.gather(2, states.clamp(max=words - 1)[..., None])
    return ((scores > chosen).sum(dim=-1) + 1).masked_fill(~is_word, 0)


def histogram(ranks: Tensor, candidates: int) -> list[int]:
    """How often each rank from 1 to `candidates` was chosen."""
    return torch.bincount(ranks.flatten(), minlength=candidates + 1)[1:].tolist()


def _best_edges(lattice: Lattice) -> Tensor:
    """[rows, columns, K] the best score that leads to each word."""
    words = lattice.states - 2
    columns = [lattice.first[:, None, :words], lattice.edges[..., :words].amax(dim=2)]
    if lattice.triples is not None:
        columns.append(lattice.triples[..., :words].amax(dim=(2, 3)))
    return torch.cat(columns, dim=1)
