"""Drafts that are trees: the likeliest one under a budget of nodes, who is above whom in it, and the path that stands.

A node is a token in a slot, after the tokens of its path; its probability is the product of the shares that these have
among their slots' candidates, each given the one before it. The `nodes` likeliest of all are a tree, since no node is
likelier than its parent: best-first drafting (DDTree, arXiv 2604.12989) without a queue.

In a step of a verifier slot 0 is the newest committed token, and node j is slot j + 1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.ops.indexing import arange, move_slots
from longstride.ops.kernels import operation
from longstride.ops.layers import linear
from longstride.ops.trace import INTEGER, lifted, tracer_of

LESS_BY_DEPTH = 1e-4
"""Taken off a node's logarithm for every token of its path: where a child is certain, its parent still comes first."""

QUERIES = 16
"""Slots of one path that a kernel of attention answers at once: the least that products on tensor cores take"""

Shape = tuple[Tensor, Tensor, Tensor | None]
"""Who is above whom in a tree, how deep slots lie, and its paths: as :func:`tree_shape` gives them"""

Pairs = tuple[Tensor, Tensor, Tensor]
"""What neighbours add to each other's values, as in :func:`longstride.ops.chain.best_chain`: before, factors, after"""


def tree_size(depth: int, each: int, nodes: int) -> int:
    """How many nodes of such a tree mean something: there are no more than paths through the candidates."""
    found, width = 0, 1
    for _ in range(depth):
        width = min(nodes, width * each)
        found = min(nodes, found + width)
    return found


def best_tree(
    values: Tensor, ids: Tensor, newest: Tensor, nodes: int, pairs: Pairs | None = None
) -> tuple[Tensor, Tensor]:
    """Candidates of each slot: values and ids [rows, depth, n]; the first slot follows `newest` [rows].

    -> tokens and parents [rows, nodes] as in :class:`longstride.verification.drafting.Proposal`, parents first. Where
    there are fewer nodes, the rest follow slot 0 and mean nothing.
    """
    tracer = tracer_of(values, ids)
    if tracer is not None:
        given = [lifted(tracer, one).handle for one in (values, ids, newest)]
        tables = None if pairs is None else (pairs[0], lifted(tracer, pairs[1]).handle, pairs[2])
        made = tracer.builder.draft_tree(given[0], given[1], given[2], nodes, tables)
        if made is not None:
            sizes = [lifted(tracer, ids).sizes[0], nodes]
            return tuple(tracer.value(one, INTEGER, sizes) for one in made)  # type: ignore[return-value]
    depth, each = ids.shape[1], ids.shape[2]
    assert isinstance(depth, int)
    assert isinstance(each, int)
    tokens, reached = newest[:, None], None
    found: list[tuple[Any, Any, Any]] = []  # of each level: logarithms, tokens, parents among all nodes
    width, first = 1, 0  # of the level above, and the number of its first node
    for slot in range(depth):
        scores = values[:, slot, None]
        if pairs is not None:
            before, factors, after = pairs
            asked = F.embedding(tokens, before) * factors[:, slot, None]
            scores = scores + asked @ F.embedding(ids[:, slot], after).transpose(1, 2)
        shares = scores.log_softmax(dim=-1).expand(-1, width, -1)
        shares = shares - LESS_BY_DEPTH if reached is None else shares + reached[..., None] - LESS_BY_DEPTH
        kept = min(nodes, width * each)
        reached, places = shares.flatten(1).topk(kept)
        parents = _over(places, each, width) + (first - width if slot else -1)
        tokens = ids[:, slot, None].expand(-1, width, -1).flatten(1).gather(1, places)
        found.append((reached, tokens, parents))
        width, first = kept, first + kept
    logarithms, tokens, parents = (torch.cat(parts, dim=1) for parts in zip(*found, strict=True))
    most = min(nodes, first)
    chosen = logarithms.topk(most)[1]
    # In the order of levels: parents first. Numbers of nodes are small enough to be exact.
    chosen = _ascending(chosen, most)
    ids_of, above_of = tokens.gather(1, chosen), parents.gather(1, chosen)
    number = arange(most, chosen) + 1
    slots = ((chosen[:, None] == above_of[..., None]).long() * number).sum(dim=-1)
    spare = nodes - most
    return (F.pad(ids_of, (0, spare)), F.pad(slots, (0, spare))) if spare else (ids_of, slots)


# --- trees of drafted slots ------------------------------------------------------------------------------------------


@operation
def tree_tokens(
    logits: Tensor,
    newest: Tensor,
    gate: Tensor | None,
    before: Tensor | None,
    after: Tensor | None,
    candidates: int,
    nodes: int,
    into: Tensor | None = None,
    shape: Shape | None = None,
) -> tuple[Tensor, Tensor]:
    """The likeliest tree of logits [rows, depth, vocabulary] of slots by themselves, after `newest` [rows]

    Candidates are the best of each slot, so many. Neighbours are scored in pairs with factors 1 + gate [rows, depth,
    rank], before and after [vocabulary, rank], where there is a link. Tokens are put `into` a tensor, if one is given,
    and the tree's `shape` into others, as :func:`tree_shape` gives it. -> tokens and parents [rows, nodes]
    """
    pairs = None
    if gate is not None:
        assert before is not None
        assert after is not None
        pairs = (before, 1 + gate, after)
    values, ids = logits.topk(min(candidates, logits.shape[-1]))
    tokens, parents = best_tree(values, ids, newest, nodes, pairs)
    for one, made in zip(shape or (), tree_shape(parents) if shape else (), strict=True):
        if one is not None and made is not None:
            one.copy_(made)
    return (tokens if into is None else into.copy_(tokens)), parents


@operation
def tree_tokens_of_states(
    hidden: Tensor, newest: Tensor, weight: Tensor, gate_weight: Tensor, before: Tensor, after: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    """:func:`tree_tokens` where logits and gate are nothing but hidden [rows, depth, width] by weight [vocabulary,
    width] and gate_weight [rank, width]"""
    return tree_tokens(F.linear(hidden, weight), newest, linear(hidden, gate_weight), before, after, *rest)


@operation
def tree_shape(parents: Tensor) -> Shape:
    """Of parents [rows, nodes], slots smaller than each node's own: whether the second slot is the first one or above
    it [rows, step, step], how many nodes lead to a slot, itself counted [rows, step], and paths, as :func:`tree_paths`
    gives them; a graph has no use for these"""
    nodes = parents.shape[1]
    slots = arange(nodes + 1, parents)
    itself = (slots[:, None] == slots)[None]
    # Slot 0 has no parent. Ancestors of ancestors are found by squaring what is reached in one step or none.
    reached = (F.pad(parents, (1, 0), value=-1)[..., None] == slots) | itself
    for _ in range(max(1, nodes).bit_length()):
        wide = reached.float()
        reached = (wide @ wide) > 0.5
    depth = reached.sum(dim=-1) - 1
    return reached, depth, None if tracer_of(parents) is not None else tree_paths(reached, depth)


def tree_paths(above: Tensor, depth: Tensor) -> Tensor:
    """[rows, step, 1 + step] int32: of each slot, how many slots its path has, and which, slot 0 first

    Paths are walked along together, as chains are, by whoever attends: :data:`QUERIES` slots at once, counted from slot
    0. A walk is needed to slots that nobody follows, and to the last of each such group; elsewhere 0 stands for how
    many. Behind a path's end lies anything.

    Numbers are as wide as these because of Triton: where bytes say which keys are read, it lays out products for bytes,
    and tensor cores add up other keys together than in a chain.
    """
    step = depth.shape[1]
    slots = torch.arange(step, device=depth.device)
    at_depth = depth[:, :, None] == slots  # [rows, step, step] whether a slot lies so deep
    path = ((above * slots).float() @ at_depth.float()).int()
    walked = (above.sum(dim=1) == 1) | (depth % QUERIES == QUERIES - 1)
    return torch.cat([((depth + 1) * walked)[..., None].int(), path], dim=2)


@operation
def compact_path(keys: Tensor, values: Tensor, path: Tensor, start: Tensor) -> None:
    """Move the keys and values of a path's slots [rows, step] together, from each row's start [rows] on, in every layer
    of caches [layers, rows, heads, columns, head]"""
    slots = path + start[:, None]
    for layer in range(keys.shape[0]):
        move_slots(keys[layer], slots, start)
        move_slots(values[layer], slots, start)


def _ascending(chosen: Tensor, most: int) -> Tensor:
    """[rows, most] whole numbers in order, the smallest first"""
    return ((chosen.float() * -1.0).topk(most)[0] * -1.0).long()


def _over(places: Tensor, each: int, width: int) -> Tensor:
    """Which of `width` groups of `each` numbers these lie in"""
    if tracer_of(places) is None:
        return places // each  # no table: a copy from the host cannot be captured
    table = torch.arange(width).repeat_interleave(each)
    return F.embedding(places, table[:, None].float())[..., 0].long()
