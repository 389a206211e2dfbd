"""Exact search through a lattice: the best path or the n best, column by column, or the best in O(log columns) steps.

A lattice has `columns` columns of `states` states. `first` scores the states of column 0, an edge a state of one column
and a state of the next; with triples the score of a state depends on the two before it. What must not be has −∞.
Scores add up along a path. Knows neither words nor models.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MAX_SUMS = 1 << 27
"""A max-plus product may hold so many sums; larger ones are taken in portions."""


@dataclass(frozen=True)
class Paths:
    """The best paths of every row, best first."""

    states: Tensor
    """[rows, n, columns] int64: the state in each column"""
    scores: Tensor
    """[rows, n]: −∞ where there are fewer paths than asked for"""


# --- column by column ------------------------------------------------------------------------------------------------


def viterbi(first: Tensor, edges: Tensor, n: int = 1) -> Paths:
    """The n best paths under scores of single states and of neighbours.

    first [rows, states]; edges [rows, columns - 1, states, states], from the earlier column's state to the later one's.
    """
    if n == 1:
        return _best_path(first, edges)
    states = first.shape[1]
    best = first[:, None, :]  # [rows, kept, states]: the scores of the best paths that end in each state
    came_from = []
    for column in range(edges.shape[1]):
        best, pointers = _step(best, edges[:, column], n)
        came_from.append(pointers.flatten(1))
    scores, place = _top(best.flatten(1), n)
    places = [place]
    for pointers in reversed(came_from):
        places.append(pointers.gather(1, places[-1]))
    return _filled(torch.stack(places[::-1], dim=-1) % states, scores, n)


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
    last, place = place // (best.shape[2] * states), place % (best.shape[2] * states)
    kept, before = place // states, place % states
    found = [last, before]
    for pointers in reversed(came_from):
        place = pointers.flatten(1).gather(1, (before * pointers.shape[2] + kept) * states + last)
        last, kept, before = before, place // states, place % states
        found.append(before)
    return _filled(torch.stack(found[::-1], dim=-1), scores, n)


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
    return _top((best[..., None] + edges[:, None]).flatten(1, 2), n)


def _top(scores: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The n best, or all there are, along dimension 1, and their places."""
    if n == 1:  # a maximum is cheaper than a sorted selection
        best, place = scores.max(dim=1, keepdim=True)
    else:
        best, place = scores.topk(min(n, scores.shape[1]), dim=1)
    return best, place


def _filled(states: Tensor, scores: Tensor, n: int) -> Paths:
    """Fewer paths than asked for are filled up with the worst of them, at −∞."""
    missing = max(0, n - scores.shape[1])
    states = torch.cat([states, states[:, -1:].expand(-1, missing, -1)], dim=1)
    return Paths(states, torch.nn.functional.pad(scores, (0, missing), value=-torch.inf))


# --- in a tree -------------------------------------------------------------------------------------------------------


def scan(first: Tensor, edges: Tensor) -> Paths:
    """The best path by max-plus products of edge matrices in a tree; arguments as of :func:`viterbi`.

    A product, C[i, j] = max_k A[i, k] + B[k, j], holds the best scores over two columns' edges together. Going up,
    neighbours are multiplied until one matrix spans the whole lattice; going down, both ends of every span are known
    and one maximum finds its middle. The work is `states` times that of the serial search: for long lattices on idle
    hardware. Scores may differ from the serial ones in the last bit: sums associate.
    """
    length, states = edges.shape[1], first.shape[1]
    if not length:
        score, state = first.max(dim=1, keepdim=True)
        return Paths(state[..., None], score)
    levels = [_with_identities(edges)]
    while levels[-1].shape[1] > 1:
        levels.append(_product(levels[-1][:, 0::2], levels[-1][:, 1::2]))
    total = first[:, :, None] + levels[-1][:, 0]
    score, place = total.flatten(1).max(dim=1, keepdim=True)
    known = torch.cat([place // states, place % states], dim=1)  # [rows, ends]: both ends of every span of a level
    for spans in reversed(levels[:-1]):
        known = _with_middles(known, spans[:, 0::2], spans[:, 1::2])
    return Paths(known[:, None, : length + 1], score)


def _with_identities(edges: Tensor) -> Tensor:
    """As many edge matrices as make a power of two; the added ones carry a state unchanged."""
    rows, length, states, _ = edges.shape
    missing = (1 << (length - 1).bit_length()) - length
    identity = torch.full((states, states), -torch.inf, dtype=edges.dtype, device=edges.device).fill_diagonal_(0)
    return torch.cat([edges, identity.expand(rows, missing, states, states)], dim=1) if missing else edges


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Max-plus products of [rows, pairs, states, states]."""
    states = left.shape[-1]
    most = max(1, MAX_SUMS // states**3)
    pairs = (torch.split(both.reshape(-1, states, states), most) for both in (left, right))
    products = [(one[:, :, :, None] + other[:, None, :, :]).amax(dim=2) for one, other in zip(*pairs, strict=True)]
    return torch.cat(products).view(left.shape)


def _with_middles(known: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Between the ends [rows, pairs + 1] of spans, the states in their middles: [rows, 2 · pairs + 1]."""
    states = left.shape[-1]
    begins, ends = known[:, :-1], known[:, 1:]
    to_middle = left.gather(2, begins[..., None, None].expand(-1, -1, 1, states))[:, :, 0]
    from_middle = right.gather(3, ends[..., None, None].expand(-1, -1, states, 1))[..., 0]
    middles = (to_middle + from_middle).argmax(dim=-1)
    mixed = torch.stack([begins, middles], dim=-1).flatten(1)
    return torch.cat([mixed, known[:, -1:]], dim=1)
