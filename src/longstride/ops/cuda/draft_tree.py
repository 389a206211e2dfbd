"""Triton kernels that grow the likeliest tree of a draft: each slot's candidates, how likely each is after each of the
slot before, and the search, best first.

The first two have a program for every slot, or some of them. The search has one warp a row. It keeps, for every node
that it has taken and for the root, the best child that is not taken yet; it takes the best of these, and looks for that
one's next sibling and first child, two lines of numbers that are asked for at once.

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
from longstride.ops.draft_tree import LESS_BY_DEPTH

_LEAST = 16
"""of what a tile is padded to"""
_EARLIER = 16
"""candidates of the slot before that a program compares with all of its own"""
_CLASSES, _OF_EACH = 256, 2
"""of ids, in which candidates are looked for without writing logits, and how many of each chunk of one: a third among
the best of so few ids is one that no tree has room for"""
_OF_A_WARP = 1024
"""logits that a warp has a share of, when candidates are chosen"""

_BITS = {torch.float32: 32, torch.float16: 19, torch.bfloat16: 16}
"""of a float32 that say all of a number of this type: its sign, 8 bits of exponent, and its digits"""


@triton.jit
def _ordered(numbers):
    """float32 -> int32 in the same order; what is no number counts as the least there is"""
    bits = tl.where(numbers == numbers, numbers, float("-inf")).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _number(ordered):
    """The other way round"""
    return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=("depth",))
def _candidates(
    logits,
    names,
    values,
    ids,
    depth,
    logits_row,
    logits_slot,
    vocabulary,
    count,
    VOCABULARY: tl.constexpr,
    BITS: tl.constexpr,
    NAMED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """The `count` largest logits of one slot, values and ids [rows, depth, count], of equal ones at the border the
    first. With NAMED, what the logits are of is in names, which lie as they do.

    Bit by bit, of BITS, the largest number is found that so many are not below.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    at = tl.program_id(0).to(tl.int64)
    token = tl.arange(0, VOCABULARY)
    inside = token < vocabulary
    slot = logits + (at // depth) * logits_row + (at % depth) * logits_slot
    value = tl.load(slot + token, mask=inside, other=float("-inf")).to(tl.float32)
    key = tl.where(inside, _ordered(value) >> (32 - BITS), -(1 << (BITS - 1)))
    border = tl.where(tl.sum((key >= 0).to(tl.int32), axis=0) >= count, 0, -(1 << (BITS - 1)))
    bit = 1 << (BITS - 2)
    for _ in range(BITS - 1):
        higher = border + bit
        border = tl.where(tl.sum((key >= higher).to(tl.int32), axis=0) >= count, higher, border)
        bit = bit >> 1
    larger = key > border
    equal = key == border
    # Two counts in one: there are no more than 2^16 ids.
    places = tl.cumsum(larger.to(tl.int32) + equal.to(tl.int32) * 65536, axis=0)
    among_larger = (places & 65535) - 1
    among_equal = ((places >> 16) & 65535) - 1 + tl.sum(larger.to(tl.int32), axis=0)
    place = tl.where(larger, among_larger, among_equal)
    chosen = inside & (larger | (equal & (among_equal < count)))
    tl.store(values + at * count + place, value, mask=chosen)
    if NAMED:
        name = tl.load(names + (at // depth) * logits_row + (at % depth) * logits_slot + token, mask=chosen, other=0)
    else:
        name = token
    tl.store(ids + at * count + place, name, mask=chosen)


@triton.jit(do_not_specialize=("depth", "newest_row", "earlier_count"))
def _shares(
    values,
    ids,
    gate,
    newest,
    before,
    after,
    shares,
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
    earlier_count, count].

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
    score = tl.zeros((EARLIER, COUNT), tl.float32) + value[None, :]
    if LINKED:
        row, slot = at // depth, at % depth
        r = tl.arange(0, RANK)
        wide = r < rank
        token = tl.load(ids + at * count + c, mask=real, other=0).to(tl.int64)
        drafted = e < tl.where(slot > 0, earlier_count, 0)
        earlier = tl.load(ids + (at - 1) * count + e, mask=drafted, other=0).to(tl.int64)
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
    place = (at * earlier_count + e[:, None]) * count + c[None, :]
    tl.store(shares + place, share, mask=of_earlier[:, None] & real[None, :])


@triton.jit(do_not_specialize=("depth", "nodes", "tokens_row", "tokens_slot"))
def _grow(
    ids,
    shares,
    tokens,
    parents,
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
    OVERLAP: tl.constexpr,
):
    """One row: tokens and parents [rows, nodes] of its likeliest tree, in the order in which nodes are taken; where
    there are fewer, zeros.

    ids [rows, depth, count]; shares as `_shares` writes them, `shares_slot` and `shares_earlier` apart. Of a list of
    children, which belongs to a slot, three numbers are in one: its own candidate, that of its best child that is not
    taken yet, and how deep that one lies.
    """
    NONE: tl.constexpr = -2147483648
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    lists = tl.arange(0, NODES)
    c = tl.arange(0, COUNT)
    real = c < count
    shares += row * depth * shares_slot
    key = tl.where(real, _ordered(tl.load(shares + c, mask=real, other=0.0) - less), NONE)
    top = tl.max(key, axis=0)
    best = tl.where(lists == 0, top, NONE)
    known = tl.where(lists == 0, tl.min(tl.where(key == top, c, COUNT), axis=0) << 8, 0)
    reached = tl.zeros((NODES,), tl.float32)
    above = tl.zeros((NODES,), tl.int32)
    found = 0
    for number in range(1, nodes + 1):
        top = tl.max(best, axis=0)
        parent = tl.min(tl.where(best == top, lists, NODES), axis=0)
        is_there = top > NONE
        what = tl.sum(tl.where(lists == parent, known, 0), axis=0)
        of_parent = tl.sum(tl.where(lists == parent, reached, 0.0), axis=0)
        own, child, slot = what & 255, (what >> 8) & 255, what >> 16
        deeper = c < tl.where(slot + 1 < tl.where(is_there, depth, 0), count, 0)
        siblings = tl.load(shares + slot * shares_slot + own * shares_earlier + c, mask=real, other=0.0)
        first = shares + (slot + 1) * shares_slot + child * shares_earlier
        children = tl.load(first + c, mask=deeper, other=0.0)

        key = _ordered(siblings + of_parent - less)
        key = tl.where(real & ((key < top) | ((key == top) & (c > child))), key, NONE)
        next_top = tl.max(key, axis=0)
        next_one = tl.min(tl.where(key == next_top, c, COUNT), axis=0)
        reaches = _number(top)
        key = tl.where(deeper, _ordered(children + reaches - less), NONE)
        first_top = tl.max(key, axis=0)
        first_one = tl.min(tl.where(key == first_top, c, COUNT), axis=0)

        best = tl.where(lists == parent, next_top, best)
        best = tl.where(lists == number, first_top, best)
        known = tl.where(lists == parent, own | (next_one << 8) | (slot << 16), known)
        known = tl.where(lists == number, child | (first_one << 8) | ((slot + 1) << 16), known)
        reached = tl.where(lists == number, reaches, reached)
        above = tl.where(lists == number, parent, above)
        found += is_there.to(tl.int32)
    taken = (lists > 0) & (lists <= found)
    place = (row * depth + (known >> 16) - 1) * count + (known & 255)
    token = tl.load(ids + place, mask=taken, other=0).to(tl.int64)
    inside = (lists > 0) & (lists <= nodes)
    tl.store(tokens + row * tokens_row + (lists - 1) * tokens_slot, token, mask=inside)
    tl.store(parents + row * nodes + lists - 1, tl.where(taken, above, 0).to(tl.int64), mask=inside)


def candidates_of(
    logits: Tensor, count: int, names: Tensor | None = None, exact_to: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """The `count` largest of logits [rows, depth, vocabulary], the last dimension dense, and what `names`, which lie as
    they do, call them, or their places -> values and ids [rows, depth, count], in float32 and int32

    Those that are equal as numbers of the type `exact_to` count as equal.
    """
    rows, depth, vocabulary = logits.shape
    values = torch.empty((rows, depth, count), dtype=torch.float32, device=logits.device)
    ids = torch.empty((rows, depth, count), dtype=torch.int32, device=logits.device)
    tile = max(_LEAST, triton.next_power_of_2(vocabulary))
    _candidates[(rows * depth,)](
        *(logits, names, values, ids, depth, *logits.stride()[:2], vocabulary, count),
        VOCABULARY=tile,
        BITS=_BITS[exact_to or logits.dtype],
        NAMED=names is not None,
        num_warps=max(1, min(32, tile // _OF_A_WARP)),
        **launching(logits),
    )
    return values, ids


def shares_of(values: Tensor, ids: Tensor, newest: Tensor, link: tuple[Tensor, Tensor, Tensor] | None) -> Tensor:
    """Candidates [rows, depth, count] after newest [rows]; of a link, gate [rows, depth, rank], before and after
    [vocabulary, rank], contiguous -> the logarithm of each candidate's share after each of the slot before [rows,
    depth, count, count] or, without a link, whatever is before [rows, depth, 1, count]"""
    rows, depth, count = ids.shape
    gate, before, after = (values, values, values) if link is None else link
    earlier, rank = (1, 1) if link is None else (count, before.shape[1])
    shares = torch.empty((rows, depth, earlier, count), dtype=torch.float32, device=ids.device)
    _shares[(rows * depth, triton.cdiv(earlier, _EARLIER))](
        *(values, ids, gate, newest, before, after, shares),
        *(depth, count, earlier, rank, newest.stride(0)),
        COUNT=_padded(count),
        EARLIER=_EARLIER,
        RANK=_padded(rank),
        LINKED=link is not None,
        num_warps=4,
        **launching(ids),
    )
    return shares


def grow(ids: Tensor, shares: Tensor, nodes: int, into: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Candidates [rows, depth, count] and their shares, as :func:`shares_of` gives them -> tokens, put `into` a tensor
    if one is given, and parents [rows, nodes]"""
    rows, depth, count = ids.shape
    parents = torch.empty((rows, nodes), dtype=torch.int64, device=ids.device)
    tokens = torch.empty_like(parents) if into is None else into
    linked = shares.shape[2] > 1
    _grow[(rows,)](
        *(ids, shares, tokens, parents),
        *(depth, nodes, count, shares.stride(1), count if linked else 0, *tokens.stride(), LESS_BY_DEPTH),
        NODES=max(32, triton.next_power_of_2(nodes + 1)),
        COUNT=max(32, triton.next_power_of_2(count)),
        num_warps=1,
        **launching(ids),
    )
    return tokens, parents


def _padded(size: int) -> int:
    return max(_LEAST, triton.next_power_of_2(size))


# --- as operations ---------------------------------------------------------------------------------------------------


def tree_tokens(logits, newest, gate, before, after, candidates, nodes, into=None) -> tuple[Tensor, Tensor]:
    """ops.tree_tokens, in the order in which nodes are taken; newest need not lie side by side"""
    logits = logits if logits.stride(-1) == 1 else logits.contiguous()
    values, ids = candidates_of(logits, min(candidates, logits.shape[-1]))
    link = None if gate is None else (gate.contiguous(), before.contiguous(), after.contiguous())
    return grow(ids, shares_of(values, ids, newest, link), nodes, into)


def tree_tokens_of_states(
    hidden, newest, weight, gate_weight, before, after, candidates, nodes, into=None
) -> tuple[Tensor, Tensor]:
    """ops.tree_tokens_of_states: logits are not written"""
    classes = min(_CLASSES, weight.shape[0])
    states = hidden.flatten(0, 1).contiguous()
    best = best_products(states, weight.contiguous(), gate_weight.contiguous(), classes, _OF_EACH)
    values, names, gate = (one.view(*hidden.shape[:2], -1) for one in best)
    values, ids = candidates_of(values, min(candidates, weight.shape[0]), names, hidden.dtype)
    link = (gate, before.contiguous(), after.contiguous())
    return grow(ids, shares_of(values, ids, newest, link), nodes, into)
