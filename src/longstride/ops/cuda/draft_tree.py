"""Triton kernels that grow the likeliest tree of a draft: how likely each slot's candidates are after each of the slot
before, and the search, best first.

The search has one warp a row. It keeps, for every node that it has taken and for the root, the best child that
is not taken yet; it takes the best of these, and looks for that one's next sibling and first child, two lines of
numbers that are asked for at once. Candidates lie in the order of what they are worth by themselves, so that the lines
that it will want are the first of every slot: they are asked for beforehand.

Imports Triton, so only what has a CUDA device imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from longstride.ops.cuda.link_candidates import best_products
from longstride.ops.cuda.overlap import begin, launching, wait
from longstride.ops.cuda.tree_candidates import OF_EACH, best_of_stripes, candidates_of
from longstride.ops.cuda.tree_candidates import ordered as ordered_bits
from longstride.ops.cuda.tree_slots import write_shape
from longstride.ops.draft_tree import LESS_BY_DEPTH, QUERIES, Shape

_LEAST = 16
"""of what a tile is padded to"""
_EARLIER = 16
"""candidates of the slot before that a program compares with all of its own"""
_CLASSES = 256
"""of ids, in which candidates are looked for in states"""
_AHEAD = 4
"""lines of every slot that a search asks for before it begins"""


@triton.jit
def _number(ordered):
    """The other way round"""
    return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _rank(some, s, value, c):
    """How many of value [n], numbered c, come before each of some [m], numbered s: larger ones, of equals the first"""
    before = (value[None, :] > some[:, None]) | ((value[None, :] == some[:, None]) & (c[None, :] < s[:, None]))
    return tl.sum(before.to(tl.int32), axis=1)


@triton.jit(do_not_specialize=("depth", "newest_row", "earlier_count"))
def _shares(
    values,
    ids,
    gate,
    newest,
    before,
    after,
    shares,
    ordered,
    depth,
    count,
    earlier_count,
    rank,
    newest_row,
    COUNT: tl.constexpr,
    EARLIER: tl.constexpr,
    RANK: tl.constexpr,
    LINKED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One slot: after EARLIER candidates of the slot before, the logarithms of its own candidates' shares [rows, depth,
    earlier_count, count]. Both lie in the order of their values, and so do the ids that are written, ordered [rows,
    depth, count].

    values and ids [rows, depth, count]; gate [rows, depth, rank]; before and after [vocabulary, rank]. Before the first
    slot there is newest [rows], as if all candidates were that; without LINKED nobody asks what was before.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    at = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, COUNT)
    e = tl.program_id(1) * EARLIER + tl.arange(0, EARLIER)
    real = c < count
    of_earlier = e < earlier_count
    value = tl.load(values + at * count + c, mask=real, other=float("-inf"))
    token = tl.load(ids + at * count + c, mask=real, other=0)
    own_rank = _rank(value, c, value, c)
    tl.store(ordered + at * count + own_rank, token, mask=real & (c < tl.where(tl.program_id(1) == 0, count, 0)))
    token = token.to(tl.int64)
    score = tl.zeros((EARLIER, COUNT), tl.float32) + value[None, :]
    line = e
    if LINKED:
        row, slot = at // depth, at % depth
        r = tl.arange(0, RANK)
        wide = r < rank
        drafted = e < tl.where(slot > 0, earlier_count, 0)
        earlier = tl.load(ids + (at - 1) * count + e, mask=drafted, other=0).to(tl.int64)
        worth = tl.load(values + (at - 1) * count + e, mask=drafted, other=float("-inf"))
        others = tl.load(values + (at - 1) * count + c, mask=c < tl.where(slot > 0, count, 0), other=float("-inf"))
        line = tl.where(slot > 0, _rank(worth, e, others, c), e)
        earlier = tl.where(slot > 0, earlier, tl.load(newest + row * newest_row))
        weigh = tl.load(gate + at * rank + r, mask=wide, other=0.0).to(tl.float32)
        met = tl.load(after + token[:, None] * rank + r[None, :], mask=real[:, None] & wide[None, :], other=0.0)
        says = tl.load(
            before + earlier[:, None] * rank + r[None, :], mask=of_earlier[:, None] & wide[None, :], other=0.0
        )
        asks = (says.to(tl.float32) * (1.0 + weigh)[None, :]).to(gate.dtype.element_ty)
        score += tl.dot(asks, tl.trans(met), input_precision="ieee")
    score = tl.where((score == score) & real[None, :], score, float("-inf"))
    top = tl.max(score, axis=1)
    top = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(tl.exp(score - top[:, None]), axis=1)
    share = score - top[:, None] - tl.log(tl.where(total == 0.0, 1.0, total))[:, None]
    place = (at * earlier_count + line[:, None]) * count + own_rank[None, :]
    tl.store(shares + place, share, mask=of_earlier[:, None] & real[None, :])


@triton.jit(do_not_specialize=("depth", "nodes", "tokens_row", "tokens_slot"))
def _grow(
    ids,
    shares,
    tokens,
    parents,
    above,
    levels,
    paths,
    depth,
    nodes,
    count,
    shares_slot,
    shares_earlier,
    tokens_row,
    tokens_slot,
    less,
    NODES: tl.constexpr,
    COUNT: tl.constexpr,
    DEPTH: tl.constexpr,
    AHEAD: tl.constexpr,
    QUERIES: tl.constexpr,
    SHAPED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One row: tokens and parents [rows, nodes] of its likeliest tree, in the order in which nodes are taken; where
    there are fewer, zeros. With SHAPED, also its shape, as `ops.tree_shape` gives it: above [rows, nodes + 1, nodes +
    1], levels [rows, nodes + 1], paths [rows, nodes + 1, nodes + 2].

    ids [rows, depth, count]; shares as `_shares` writes them, `shares_slot` and `shares_earlier` apart. Of a list of
    children, which belongs to a slot, four numbers are in one: that slot, how deep the children lie, the best of them
    that is not taken yet, and the slot's own candidate.
    """
    begin(OVERLAP)
    NONE: tl.constexpr = -2147483648
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    lists = tl.arange(0, NODES)
    c = tl.arange(0, COUNT)
    real = c < count
    shares += row * depth * shares_slot
    lines = tl.arange(0, AHEAD)
    deep = tl.arange(0, DEPTH)
    place = deep[:, None] * shares_slot + lines[None, :]
    wanted = (deep < depth)[:, None] & (lines < tl.minimum(shares_slot, AHEAD))[None, :]
    warm = tl.max(tl.max(tl.load(shares + place, mask=wanted, other=0.0), axis=0), axis=0)
    key = tl.where(real, ordered_bits(tl.load(shares + c, mask=real, other=0.0) - less), NONE)
    top = tl.max(key, axis=0)
    best = tl.where(lists == 0, top, NONE)
    known = tl.where(lists == 0, tl.min(tl.where(key == top, c, COUNT), axis=0) << 6, 0)
    reached = tl.zeros((NODES,), tl.int32)  # as bits of a float32: whole numbers are summed at once
    followed = tl.zeros((NODES,), tl.int32)
    lower = tl.where(lists == 0, 1, 0)  # bits of a slot and of those above it: of the first 32, and of the rest
    upper = tl.zeros((NODES,), tl.int32)
    has_child = tl.zeros((NODES,), tl.int32)
    found = (warm > 1.0).to(tl.int32)  # no logarithm of a share is: 0, but what was asked for has to be of use
    for number in range(1, nodes + 1):
        top = tl.max(best, axis=0)
        what = tl.min(tl.where(best == top, known, 2147483647), axis=0)
        parent, slot, child, own = what >> 24, (what >> 12) & 4095, (what >> 6) & 63, what & 63
        siblings = tl.load(shares + slot * shares_slot + own * shares_earlier + c, mask=real, other=0.0)
        deeper = c < tl.where(slot + 1 < tl.where(top > NONE, depth, 0), count, 0)
        first = shares + (slot + 1) * shares_slot + child * shares_earlier
        children = tl.load(first + c, mask=deeper, other=0.0)
        of_parent = tl.sum(tl.where(lists == parent, reached, 0), axis=0).to(tl.float32, bitcast=True)

        key = ordered_bits(siblings + of_parent - less)
        key = tl.where(real & ((key < top) | ((key == top) & (c > child))), key, NONE)
        next_top = tl.max(key, axis=0)
        next_one = tl.min(tl.where(key == next_top, c, COUNT), axis=0)
        reaches = _number(top)
        key = tl.where(deeper, ordered_bits(children + reaches - less), NONE)
        first_top = tl.max(key, axis=0)
        first_one = tl.min(tl.where(key == first_top, c, COUNT), axis=0)

        best = tl.where(lists == parent, next_top, tl.where(lists == number, first_top, best))
        of_next = (parent << 24) | (slot << 12) | (next_one << 6) | own
        of_first = (number << 24) | ((slot + 1) << 12) | (first_one << 6) | child
        known = tl.where(lists == parent, of_next, tl.where(lists == number, of_first, known))
        reached = tl.where(lists == number, reaches.to(tl.int32, bitcast=True), reached)
        followed = tl.where(lists == number, parent, followed)
        if SHAPED:
            bit = 1 << (number & 31)
            of_lower = tl.sum(tl.where(lists == parent, lower, 0), axis=0) | tl.where(number < 32, bit, 0)
            of_upper = tl.sum(tl.where(lists == parent, upper, 0), axis=0) | tl.where(number < 32, 0, bit)
            lower = tl.where(lists == number, of_lower, lower)
            upper = tl.where(lists == number, of_upper, upper)
            has_child = tl.where(lists == parent, 1, has_child)
        found += (top > NONE).to(tl.int32)
    taken = (lists > 0) & (lists <= found)
    place_of = (row * depth + ((known >> 12) & 4095) - 1) * count + (known & 63)
    token = tl.load(ids + place_of, mask=taken, other=0).to(tl.int64)
    inside = (lists > 0) & (lists <= nodes)
    tl.store(tokens + row * tokens_row + (lists - 1) * tokens_slot, token, mask=inside)
    tl.store(parents + row * nodes + lists - 1, tl.where(taken, followed, 0).to(tl.int64), mask=inside)
    if SHAPED:
        others = tl.arange(0, NODES)
        word = tl.where((others < 32)[None, :], lower[:, None], upper[:, None])
        is_above = (word >> (others & 31)[None, :]) & 1
        level = (known >> 12) & 4095
        write_shape(is_above, level, has_child, above, levels, paths, row, nodes + 1, QUERIES, NODES)


def shares_of(
    values: Tensor, ids: Tensor, newest: Tensor, link: tuple[Tensor, Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    """Candidates [rows, depth, count] after newest [rows]; of a link, gate [rows, depth, rank], before and after
    [vocabulary, rank], contiguous -> the logarithm of each candidate's share after each of the slot before [rows,
    depth, count, count] or, without a link, whatever is before [rows, depth, 1, count], and the ids, both with
    candidates in the order of their values"""
    rows, depth, count = ids.shape
    gate, before, after = (values, values, values) if link is None else link
    earlier, rank = (1, 1) if link is None else (count, before.shape[1])
    shares, ordered = values.new_empty((rows, depth, earlier, count)), torch.empty_like(ids)
    _shares[(rows * depth, triton.cdiv(earlier, _EARLIER))](
        *(values, ids, gate, newest, before, after, shares, ordered),
        *(depth, count, earlier, rank, newest.stride(0)),
        COUNT=_padded(count),
        EARLIER=_EARLIER,
        RANK=_padded(rank),
        LINKED=link is not None,
        num_warps=4,
        **launching(ids),
    )
    return shares, ordered


def grow(
    shares: Tensor,
    ids: Tensor,
    nodes: int,
    into: Tensor | None = None,
    shape: Shape | None = None,
) -> tuple[Tensor, Tensor]:
    """Shares and ids [rows, depth, count] of candidates, as :func:`shares_of` gives them -> tokens, put `into` a tensor
    if one is given, and parents [rows, nodes]; the tree's `shape` is put into contiguous tensors, if they are given"""
    rows, depth, count = ids.shape
    parents = torch.empty((rows, nodes), dtype=torch.int64, device=ids.device)
    tokens = torch.empty_like(parents) if into is None else into
    linked = shares.shape[2] > 1
    above, levels, paths = (parents,) * 3 if shape is None else (shape[0].view(torch.uint8), *shape[1:])
    _grow[(rows,)](
        *(ids, shares, tokens, parents, above, levels, paths),
        *(depth, nodes, count, shares.stride(1), count if linked else 0, *tokens.stride(), LESS_BY_DEPTH),
        NODES=max(32, triton.next_power_of_2(nodes + 1)),
        COUNT=max(32, triton.next_power_of_2(count)),
        DEPTH=min(16, triton.next_power_of_2(depth)),
        QUERIES=QUERIES,
        SHAPED=shape is not None,
        AHEAD=_AHEAD * max(32, triton.next_power_of_2(count)),
        num_warps=1,
        **launching(ids),
    )
    return tokens, parents


def _padded(size: int) -> int:
    return max(_LEAST, triton.next_power_of_2(size))


# --- as operations ---------------------------------------------------------------------------------------------------


def tree_tokens(logits, newest, gate, before, after, candidates, nodes, into=None, shape=None) -> tuple[Tensor, Tensor]:
    """ops.tree_tokens, in the order in which nodes are taken; newest need not lie side by side"""
    logits = logits if logits.stride(-1) == 1 else logits.contiguous()
    found = candidates_of(*best_of_stripes(logits), min(candidates, logits.shape[-1]), logits.dtype)
    link = None if gate is None else (gate.contiguous(), before.contiguous(), after.contiguous())
    return grow(*shares_of(*found, newest, link), nodes, into, shape)


def tree_tokens_of_states(
    hidden, newest, weight, gate_weight, before, after, candidates, nodes, into=None, shape=None
) -> tuple[Tensor, Tensor]:
    """ops.tree_tokens_of_states: logits are not written"""
    classes = min(_CLASSES, weight.shape[0])
    states = hidden.flatten(0, 1).contiguous()
    best = best_products(states, weight.contiguous(), gate_weight.contiguous(), classes, OF_EACH)
    values, names, gate = (one.view(*hidden.shape[:2], -1) for one in best)
    found = candidates_of(values, names, min(candidates, weight.shape[0]), hidden.dtype)
    return grow(*shares_of(*found, newest, (gate, before.contiguous(), after.contiguous())), nodes, into, shape)
