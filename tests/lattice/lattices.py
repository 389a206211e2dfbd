"""Random lattices, and the slow twin of every search: all paths there are, scored one by one."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor


def random_lattice(
    rows: int, columns: int, states: int, seed: int, forbidden: float = 0.3
) -> tuple[Tensor, Tensor, Tensor]:
    """first, edges and triples, a share of them −∞."""
    rng = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        scores = torch.randn(shape, generator=rng, dtype=torch.float64)
        return scores.masked_fill(torch.rand(shape, generator=rng) < forbidden, float("-inf"))

    return (
        draw(rows, states),
        draw(rows, columns - 1, states, states),
        draw(rows, max(0, columns - 2), states, states, states),
    )


def all_paths(first: Tensor, edges: Tensor, triples: Tensor | None = None) -> list[tuple[float, tuple[int, ...]]]:
    """Every path of one row with a finite score, best first; first [states], edges [columns - 1, states, states]."""
    states = first.shape[0]
    columns = (len(edges) if triples is None else len(triples) + 1) + 1
    found = []
    for path in itertools.product(range(states), repeat=columns):
        score = float(first[path[0]])
        for column in range(1, columns):
            if triples is None or column == 1:
                score += float(edges[column - 1, path[column - 1], path[column]])
            else:
                score += float(triples[column - 2, path[column - 2], path[column - 1], path[column]])
        if score > -float("inf"):
            found.append((score, path))
    return sorted(found, reverse=True)


def path_scores(first: Tensor, edges: Tensor, states: Tensor) -> Tensor:
    """[rows, n] the scores of given paths [rows, n, columns], by adding up."""
    total = first.gather(1, states[..., 0])
    rows = torch.arange(first.shape[0])[:, None]
    for column in range(edges.shape[1]):
        total = total + edges[rows, column, states[..., column], states[..., column + 1]]
    return total
