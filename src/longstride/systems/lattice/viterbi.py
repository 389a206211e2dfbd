"""Exact search through a lattice, column by column: the best path, or the n best.

A lattice has `columns` columns of `states` states. `first` scores the states of column 0, an edge a state of one column
and a state of the next; what must not be has −∞. Scores add up along a path. With triples the score of a state depends
on the two before it. This file knows neither words nor models: states are numbers, scores are whatever was added up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Paths:
    """The best paths of every row, best first."""

    states: Tensor
    """[rows, n, columns] int64: the state in each column"""
    scores: Tensor
    """[rows, n]: −∞ where there are fewer paths than asked for"""


def viterbi(first: Tensor, edges: Tensor, n: int = 1) -> Paths:
    """The n best paths under scores of single states and of neighbours.

    first [rows, states]; edges [rows, columns - 1, states, states], from the earlier column's state to the later one's.
    """
    if n == 1:
        return _best_path(first, edges)
    best = first[:, None, :]  # [rows, kept, states]: the scores of the best paths that end in each state
    came_from = []
    for column in range(edges.shape[1]):
        best, pointers = _step(best, edges[:, column], n)
        came_from.append(pointers)
    scores, place = _top(best.flatten(1), n)
    kept, state = place // first.shape[1], place % first.shape[1]
    found = [state]
    for pointers in reversed(came_from):
        place = pointers.flatten(1).gather(1, kept * first.shape[1] + state)
        kept, state = place // first.shape[1], place % first.shape[1]
        found.append(state)
    return _filled(Paths(torch.stack(found[::-1], dim=-1), scores), n)


def _best_path(first: Tensor, edges: Tensor) -> Paths:
    """The same for a single path in few operations: a sum and a maximum per column, then back in O(log columns).

    On a device, operations as small as these cost their number.
    """
    best = first
    came_from = []
    for column in range(edges.shape[1]):
        best, pointers = (best[:, :, None] + edges[:, column]).max(dim=1)
        came_from.append(pointers)
    score, last = best.max(dim=1, keepdim=True)
    if not came_from:
        return Paths(last[:, None], score)
    # [rows, columns - 1, states]: from a state so many columns on, or in the last column, back to the column's own.
    back, steps = torch.stack(came_from, dim=1), 1
    while steps < back.shape[1]:
        further = back[:, :-steps].gather(2, back[:, steps:])
        back, steps = torch.cat([further, back[:, -steps:]], dim=1), 2 * steps
    states = back.gather(2, last[:, None].expand(-1, back.shape[1], -1))[..., 0]
    return Paths(torch.cat([states, last], dim=1)[:, None], score)


def viterbi_triples(first: Tensor, second: Tensor, triples: Tensor, n: int = 1) -> Paths:
    """The n best paths where from the third column on a score depends on the two states before.

    first [rows, states]; second [rows, states, states] for the edges into column 1; triples [rows, columns - 2, states,
    states, states] for (two before, one before, this).
    """
    rows, states = first.shape
    # A path is told by its last two states. The last but one is kept in front, like a row of its own, so that one step
    # is the same as for single states: [rows, last, kept, last but one].
    best = (first[:, :, None] + second).transpose(1, 2)[:, :, None, :]
    came_from = []
    for column in range(triples.shape[1]):
        step = triples[:, column].transpose(1, 2)  # [rows, one before, two before, this]
        grown, pointers = _step(best.flatten(0, 1), step.flatten(0, 1), n)
        shape = (rows, states, grown.shape[1], states)
        best = grown.view(shape).permute(0, 3, 2, 1)
        came_from.append(pointers.view(shape))  # [rows, one before, kept, this]
    scores, place = _top(best.flatten(1), n)
    kept_of_all = best.shape[2]
    last = place // (kept_of_all * states)
    kept, before = place // states % kept_of_all, place % states
    found = [last, before]
    for pointers in reversed(came_from):
        place = pointers.flatten(1).gather(1, (before * pointers.shape[2] + kept) * states + last)
        last, kept, before = before, place // states, place % states
        found.append(before)
    return _filled(Paths(torch.stack(found[::-1], dim=-1), scores), n)


def path_scores(first: Tensor, edges: Tensor, states: Tensor) -> Tensor:
    """[rows, n] the scores of given paths [rows, n, columns], by adding up: what a search must agree with."""
    total = first.gather(1, states[..., 0])
    rows = torch.arange(first.shape[0], device=first.device)[:, None]
    for column in range(edges.shape[1]):
        total = total + edges[rows, column, states[..., column], states[..., column + 1]]
    return total


def best_through(first: Tensor, edges: Tensor) -> Tensor:
    """[rows, columns, states] the score of the best path that goes through each state."""
    before, after = [first], [torch.zeros_like(first)]
    for column in range(edges.shape[1]):
        before.append((before[-1][:, :, None] + edges[:, column]).amax(dim=1))
        after.append((edges[:, -1 - column] + after[-1][:, None, :]).amax(dim=2))
    return torch.stack(before, dim=1) + torch.stack(after[::-1], dim=1)


def _step(best: Tensor, edges: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """best [rows, kept, from], edges [rows, from, to] -> [rows, up to n, to], and where each came from: kept and from
    in one number."""
    total = best[..., None] + edges[:, None]
    return _top(total.flatten(1, 2), n)


def _top(scores: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The n best, or all there are, along dimension 1, and their places."""
    if n == 1:  # a maximum is cheaper than a sorted selection
        best, place = scores.max(dim=1, keepdim=True)
    else:
        best, place = scores.topk(min(n, scores.shape[1]), dim=1)
    return best, place


def _filled(paths: Paths, n: int) -> Paths:
    """Fewer paths than asked for are filled up with the worst of them, at −∞."""
    missing = n - paths.scores.shape[1]
    if missing <= 0:
        return paths
    states = torch.cat([paths.states, paths.states[:, -1:].expand(-1, missing, -1)], dim=1)
    scores = torch.nn.functional.pad(paths.scores, (0, missing), value=float("-inf"))
    return Paths(states, scores)
