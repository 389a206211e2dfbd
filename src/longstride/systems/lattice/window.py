"""The length window in a lattice: one in which a single search covers all the lengths that a sentence may have.

A column holds K words, then EOS, then PAD. A path of length l, EOS counted, has l - 1 words, EOS in column l - 1 and
PAD after it. So the window is a matter of edges:

    into EOS     from words alone, in the columns that end a sentence of an allowed length; its score is the model's
    into PAD     from EOS and PAD alone, for nothing; from a word never
    into a word  from words alone, in columns before the last in which the sentence may end

What must not be is −∞, whatever the model says. Knows no model and no search.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.contract import SpecialIds
from longstride.search.lengths import Window
from longstride.systems.lattice.candidates import Candidates
from longstride.systems.lattice.scoring import Scores


@dataclass(frozen=True)
class Lattice:
    """Sentences as lattices with all their scores: what is searched, and what a person may look at."""

    ids: Tensor
    """[rows, columns, states] int64: K candidates (PAD where there are fewer), EOS, PAD"""
    first: Tensor
    """[rows, states] scores of column 0"""
    edges: Tensor
    """[rows, columns - 1, states, states] from the earlier column's state to the later one's; with triples only those
    into column 1"""
    triples: Tensor | None
    """[rows, columns - 2, states, states, states] from the two states before; None where one decides"""
    log_scores: Tensor
    """[rows, columns, K] what the candidates were chosen by"""
    ends: Tensor | None = None
    """[rows, columns] float64: what a path that ends in a column has in its score beside probabilities, if anything"""


def assemble(candidates: Candidates, scores: Scores, window: Window, special: SpecialIds) -> Lattice:
    """Put EOS and PAD beside the candidates and forbid what must not be."""
    words = candidates.ids
    ids = torch.cat([words, *(torch.full_like(words[..., :1], id) for id in (special.eos, special.pad))], dim=-1)
    allowed = _allowed(words != special.pad, window)
    first = _emitted(scores.first, allowed[:, 0])
    edges = _edges(scores.edges, allowed[:, 1 : 1 + scores.edges.shape[1]])
    triples = None if scores.triples is None else _triples(scores.triples, allowed[:, 2:])
    return Lattice(ids, first, edges, triples, candidates.log_scores)


def with_ends(lattice: Lattice, ends: Tensor) -> Lattice:
    """The same with `ends` [rows, columns] added to every path that has EOS in a column."""
    on_end = torch.zeros(lattice.ids.shape, dtype=lattice.first.dtype, device=ends.device)
    on_end[..., -2] = ends.to(on_end.dtype)
    first, edges, triples = lattice.first + on_end[:, 0], lattice.edges, lattice.triples
    edges = edges + on_end[:, 1 : 1 + edges.shape[1], None]
    triples = None if triples is None else triples + on_end[:, 2:, None, None]
    return replace(lattice, first=first, edges=edges, triples=triples, ends=ends)


def _allowed(there: Tensor, window: Window) -> Tensor:
    """[rows, columns, K + 1] bool: which of the words that are `there`, and whether EOS, may stand in a column."""
    column = torch.arange(there.shape[1], device=there.device)
    goes_on = column < window.longest[:, None] - 1
    ends = (column >= window.shortest[:, None] - 1) & (column < window.longest[:, None])
    return torch.cat([there & goes_on[..., None], ends[..., None]], dim=-1)


def _emitted(scores: Tensor, allowed: Tensor) -> Tensor:
    """[..., K + 1] -> [..., K + 2]: scores of words and EOS where they may stand; PAD comes from no word."""
    return F.pad(scores.masked_fill(~allowed, -torch.inf), (0, 1), value=-torch.inf)


def _edges(scores: Tensor, allowed: Tensor) -> Tensor:
    """[rows, n, K, K + 1] -> [rows, n, K + 2, K + 2]: from words by the model, from EOS and PAD to PAD alone."""
    from_words = _emitted(scores, allowed[:, :, None])
    edges = F.pad(from_words, (0, 0, 0, 2), value=-torch.inf)
    edges[..., -2:, -1].zero_()
    return edges


def _triples(scores: Tensor, allowed: Tensor) -> Tensor:
    """[rows, n, K, K, K + 1] -> [rows, n, K + 2, K + 2, K + 2]; only EOS may follow a word and stand before PAD."""
    from_words = _emitted(scores, allowed[:, :, None, None])
    triples = F.pad(from_words, (0, 0, 0, 2, 0, 2), value=-torch.inf)
    triples[..., :-2, -2, -1].zero_()  # word, EOS, PAD
    triples[..., -2:, -1, -1].zero_()  # EOS or PAD, PAD, PAD
    return triples
