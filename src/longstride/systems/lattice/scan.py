"""The best path in O(log columns) steps that depend on each other: max-plus products of edge matrices in a tree.

The product of two matrices, C[i, j] = max_k A[i, k] + B[k, j], holds the best scores over two columns' edges together.
Going up the tree, neighbours are multiplied until one matrix spans the whole lattice; going down, both ends of every
span are known and its middle is found from the two halves: one maximum over states, so no pointers need to be kept.
Lengths that are no power of two are filled up with the identity (0 on the diagonal, −∞ elsewhere), which carries a
state unchanged. The work is `states` times that of the serial search: worth it where long lattices meet idle hardware.
"""

from __future__ import annotations

import torch
from torch import Tensor

from longstride.systems.lattice.viterbi import Paths

AT_ONCE = 1 << 27
"""Sums that a product may hold at once; larger ones are taken in portions."""


def scan(first: Tensor, edges: Tensor) -> Paths:
    """The best path; arguments as of :func:`viterbi`. Scores may differ from its in the last bit: sums associate."""
    levels = [_padded(edges)] if edges.shape[1] else []
    while levels and levels[-1].shape[1] > 1:
        spans = levels[-1]
        levels.append(_product(spans[:, 0::2], spans[:, 1::2]))
    if not levels:
        score, state = first.max(dim=1, keepdim=True)
        return Paths(state[..., None], score)

    states = first.shape[1]
    total = first[:, :, None] + levels[-1][:, 0]
    score, place = total.flatten(1).max(dim=1, keepdim=True)
    known = torch.cat([place // states, place % states], dim=1)  # [rows, ends]: both ends of every span of a level
    for spans in reversed(levels[:-1]):
        known = _with_middles(known, spans[:, 0::2], spans[:, 1::2])
    return Paths(known[:, None, : edges.shape[1] + 1], score)


def _padded(edges: Tensor) -> Tensor:
    """[rows, columns - 1, states, states] -> the same, with as many identities as make it a power of two."""
    rows, length, states, _ = edges.shape
    missing = (1 << (length - 1).bit_length()) - length
    if not missing:
        return edges
    identity = torch.full((states, states), float("-inf"), dtype=edges.dtype, device=edges.device)
    identity.fill_diagonal_(0)
    return torch.cat([edges, identity.expand(rows, missing, states, states)], dim=1)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Max-plus products of [rows, pairs, states, states]."""
    shape = left.shape
    states = shape[-1]
    left, right = left.reshape(-1, states, states), right.reshape(-1, states, states)
    portion = max(1, AT_ONCE // states**3)
    products = [
        (left[start : start + portion, :, :, None] + right[start : start + portion, None, :, :]).amax(dim=2)
        for start in range(0, len(left), portion)
    ]
    return torch.cat(products).view(shape)


def _with_middles(known: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Between the ends [rows, pairs + 1] of spans, the states in their middles: [rows, 2 · pairs + 1]."""
    states = left.shape[-1]
    begins, ends = known[:, :-1], known[:, 1:]
    to_middle = left.gather(2, begins[..., None, None].expand(-1, -1, 1, states))[:, :, 0]
    from_middle = right.gather(3, ends[..., None, None].expand(-1, -1, states, 1))[..., 0]
    middles = (to_middle + from_middle).argmax(dim=-1)
    mixed = torch.stack([begins, middles], dim=-1).flatten(1)
    return torch.cat([mixed, known[:, -1:]], dim=1)
