"""Triton kernels of a decoder step's attention: few queries, over what a cache holds or over an encoded source.

A program has up to 16 queries of one head of one row and walks over its keys, so many at a time from the first on. The
tile is the same whatever the step's width and however long the cache is: a query's numbers are those of a step of its
own, bit for bit. What it does not see adds exact zeros and multiplies by exactly one, and tiles beyond the last visible
key are not walked over where that is known beforehand.

What bounds so few queries is waiting for memory, so the first keys are asked for before anything else.

A row's past may lie in other rows, slot by slot (the hypotheses of a beam): then it is read there and nothing moves.

Slots of a step may be a tree: each sees what is before the step, and of the step its own ancestors. A program then
walks along one path, whose keys and values it gathers at the places that they would have in a chain: tensor cores add
up the same ones together, so that bits are the chain's. Slots of several paths are answered by several programs alike.
Or attention is local: what lies before the block before a tile's first query is not walked over.

A step's own keys and values are written into the cache by the same kernel. No program reads from memory what any writes
there: what is new is read where the product left it, what is old from the cache. So there is nothing to wait for.

Imports Triton, so only what has a CUDA device imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import math
from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from longstride.ops.attention import BlockCausal, TreeCausal, bias_over, read_cache, write_cache
from longstride.ops.cuda.overlap import begin, launching, wait
from longstride.ops.draft_tree import QUERIES as _QUERIES
from longstride.ops.local_attention import LocalCausal

_LOG2_E = math.log2(math.e)


@dataclass
class Walk:
    """How a program goes over its keys. Bits depend on it, so all calls share one."""

    keys: int
    """at a time"""
    warps: int


WALK = Walk(keys=64, warps=4)


@triton.jit
def _fold(q, k, v, hidden, top, total, mixed, scale):
    """What is known of some queries after further keys: the largest score, the sum of exponentials, the mixed values.

    k lies on its side. `hidden` is added to the scores: 0, or -inf where a key is not seen; k may then be anything, but
    v must be finite.
    """
    scores = tl.dot(q, k, input_precision="ieee") * scale
    scores = tl.where(hidden > float("-inf"), scores + hidden, float("-inf"))
    higher = tl.maximum(top, tl.max(scores, 1))
    level = tl.where(higher == float("-inf"), 0.0, higher)  # as long as nothing was seen
    weights = tl.exp2(scores - level[:, None])
    fade = tl.exp2(top - level)
    total = total * fade + tl.sum(weights, 1)
    mixed = mixed * fade[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    return higher, total, mixed


@triton.jit
def _past(
    first,
    start,
    end,
    old_keys,
    old_values,
    given,
    width,
    line,
    path,
    longest,
    keys_row,
    values_row,
    KEYS: tl.constexpr,
    HEAD: tl.constexpr,
    LINED: tl.constexpr,
    TREE: tl.constexpr,
):
    """Keys, on their side, and values of KEYS slots from `first` on: old ones from the cache, new ones as given.

    With `LINED`, old ones from the rows that `line` [longest] names; with `TREE`, new ones of the slots that `path`
    [end - start] names.
    """
    j = first + tl.arange(0, KEYS)
    d = tl.arange(0, HEAD)
    old, real = j < start, j < end
    behind = j - start
    if TREE:
        behind = tl.load(path + behind, mask=(behind >= 0) & real, other=0)
    in_cache, in_step = j * HEAD, behind * (3 * width)
    if LINED:
        # Asked for without knowing where the row starts: what lies beyond names a row too, or is not looked at.
        row = tl.load(line + j, mask=j < longest, other=0).to(tl.int64)
        k_old, v_old = old_keys + row * keys_row + in_cache, old_values + row * values_row + in_cache
    else:
        k_old, v_old = old_keys + in_cache, old_values + in_cache
    # Bytes, which heads are wide enough for: of a choice between places Triton knows nothing by itself, and would load
    # number by number.
    k_from = tl.multiple_of(tl.where(old, k_old, given + width + in_step), 16)
    v_from = tl.multiple_of(tl.where(old, v_old, given + 2 * width + in_step), 16)
    k = tl.load(k_from[None, :] + d[:, None], mask=real[None, :], other=0.0)
    v = tl.load(v_from[:, None] + d[None, :], mask=real[:, None], other=0.0)
    return k, v


@triton.jit
def _unseen(first, seen, KEYS: tl.constexpr, LOCAL: tl.constexpr):
    """What is added to the scores of KEYS slots from `first` on: 0 where queries see them, before `seen`, else -inf;
    with LOCAL, a block's length, none before the block before a query's own"""
    j = first + tl.arange(0, KEYS)
    if LOCAL > 0:
        reach = ((seen - 1) // LOCAL - 1) * LOCAL
        return tl.where((j[None, :] < seen[:, None]) & (j[None, :] >= reach[:, None]), 0.0, float("-inf"))
    else:  # noqa: RET505  # Triton has no other way to say it
        return tl.where(j[None, :] < seen[:, None], 0.0, float("-inf"))


@triton.jit(do_not_specialize=("step", "longest", "slots_row", "lines_row"))
def _extend(
    packed,
    slots,
    lines,
    paths,
    keys,
    values,
    out,
    step,
    longest,
    slots_row,
    lines_row,
    heads,
    keys_row,
    keys_head,
    values_row,
    values_head,
    scale,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HEAD: tl.constexpr,
    LINED: tl.constexpr,
    WHOLE: tl.constexpr,
    TREE: tl.constexpr,
    LOCAL: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """packed [rows, step, 3, heads, HEAD] goes to slots from each row's first on; each sees itself and what is before
    or, with `WHOLE`, all of the step and what is before. With `TREE`, slots are those of a path of paths [rows, step,
    1 + step], and each sees those that come first on it and what is before the step.

    Caches [rows, heads, longest, HEAD]; out [rows, step, heads, HEAD]. With `LINED`, what is before lies in the rows
    that lines [rows, longest] name, slot by slot.
    """
    begin(OVERLAP)
    wait(OVERLAP)  # there is no weight to read
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    start = tl.load(slots + row * slots_row).to(tl.int32)
    path = paths
    if TREE:
        path += (row * step + tl.program_id(2)) * (step + 1)
        count = tl.load(path)
        if count == 0:
            return
        path += 1
        tile = (count - 1) // QUERIES * QUERIES
    else:
        count = step
        tile = tl.program_id(2) * QUERIES
    width = heads * HEAD
    i = tile + tl.arange(0, QUERIES)
    d = tl.arange(0, HEAD)
    if WHOLE:
        end = start + step
        seen = end + tl.zeros((QUERIES,), tl.int32)
    else:
        end = start + tl.minimum(tile + QUERIES, count)
        seen = start + i + 1
    asked = (i < count)[:, None]
    own_slot = i
    if TREE:
        own_slot = tl.load(path + i, mask=i < count, other=0)
    given = packed + row * step * (3 * width) + head * HEAD
    old_keys = keys + row * keys_row + head * keys_head
    old_values = values + row * values_row + head * values_head
    if LINED:
        past_keys, past_values = keys + head * keys_head, values + head * values_head
    else:
        past_keys, past_values = old_keys, old_values
    line = lines + row * lines_row
    # The tile that holds the first key which any of these queries sees; from 0, so that tiles are everybody's.
    if LOCAL > 0:  # noqa: SIM108  # known when it is compiled
        lowest = tl.maximum((start + tile) // LOCAL - 1, 0) * LOCAL // KEYS * KEYS
    else:
        lowest = 0
    # fmt: off
    k, v = _past(lowest, start, end, past_keys, past_values, given, width,
                 line, path, longest, keys_row, values_row, KEYS, HEAD, LINED, TREE)
    # fmt: on
    own = given + own_slot[:, None] * (3 * width) + d[None, :]
    q = tl.load(own, mask=asked, other=0.0)
    own_k = tl.load(own + width, mask=asked, other=0.0)
    own_v = tl.load(own + 2 * width, mask=asked, other=0.0)
    room = asked & (start + own_slot < longest)[:, None]
    place = (start + own_slot)[:, None] * HEAD + d[None, :]
    tl.store(old_keys + place, own_k, mask=room)
    tl.store(old_values + place, own_v, mask=room)

    top = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    mixed = tl.zeros((QUERIES, HEAD), tl.float32)
    hidden = _unseen(lowest, seen, KEYS, LOCAL)
    top, total, mixed = _fold(q, k, v, hidden, top, total, mixed, scale)
    for first in range(lowest + KEYS, end, KEYS):
        # fmt: off
        k, v = _past(first, start, end, past_keys, past_values, given, width,
                     line, path, longest, keys_row, values_row, KEYS, HEAD, LINED, TREE)
        # fmt: on
        top, total, mixed = _fold(q, k, v, _unseen(first, seen, KEYS, LOCAL), top, total, mixed, scale)
    mixed = mixed / total[:, None]
    found = out + row * step * width + own_slot[:, None] * width + head * HEAD + d[None, :]
    tl.store(found, mixed.to(q.dtype), mask=asked)


@triton.jit
def _keys(first, count, i, queries, keys, hidden, keys_step, hidden_step, hidden_key, KEYS, HEAD, EACH: tl.constexpr):
    """KEYS keys from `first` on, on their side, and what is added to their scores, one row for all without `EACH`."""
    j = first + tl.arange(0, KEYS)
    d = tl.arange(0, HEAD)
    real = j < count
    if EACH:
        inside = (i < queries)[:, None] & real[None, :]
        place = i[:, None] * hidden_step + j[None, :] * hidden_key
        added = tl.load(hidden + place, mask=inside, other=float("-inf"))
    else:
        added = tl.load(hidden + j * hidden_key, mask=real, other=float("-inf"))
    k = tl.load(keys + j[None, :] * keys_step + d[:, None], mask=real[None, :], other=0.0)
    return k, added.to(tl.float32) * 1.4426950408889634  # log2(e): exponentials are powers of 2


@triton.jit
def _values(first, added, values, values_step, KEYS: tl.constexpr, HEAD: tl.constexpr, EACH: tl.constexpr):
    """The values of KEYS keys from `first` on, 0 where nobody sees them; what is added to scores, for all queries."""
    seen = (tl.max(added, 0) if EACH else added) > float("-inf")
    j = first + tl.arange(0, KEYS)
    d = tl.arange(0, HEAD)
    v = tl.load(values + j[:, None] * values_step + d[None, :], mask=seen[:, None], other=0.0)
    return v, added if EACH else added[None, :]


@triton.jit(do_not_specialize=("queries", "count", "hidden_row", "hidden_head", "hidden_step"))
def _read(
    q,
    keys,
    values,
    hidden,
    out,
    queries,
    count,
    heads,
    q_row,
    q_step,
    keys_row,
    keys_head,
    keys_step,
    values_row,
    values_head,
    values_step,
    hidden_row,
    hidden_head,
    hidden_step,
    hidden_key,
    scale,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HEAD: tl.constexpr,
    EACH: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """q [rows, queries, heads, HEAD] over keys and values [rows, heads, count, HEAD]; out like q.

    hidden, times log2(e), is added to scores: [rows, heads, queries, count] with `EACH`, else [rows, count], one for
    all queries.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    i = tl.program_id(2) * QUERIES + tl.arange(0, QUERIES)
    d = tl.arange(0, HEAD)
    asked = i < queries
    keys += row * keys_row + head * keys_head
    values += row * values_row + head * values_head
    hidden += row * hidden_row + head * hidden_head
    k, added = _keys(0, count, i, queries, keys, hidden, keys_step, hidden_step, hidden_key, KEYS, HEAD, EACH)
    q_tile = tl.load(q + row * q_row + i[:, None] * q_step + head * HEAD + d[None, :], mask=asked[:, None], other=0.0)
    v, added = _values(0, added, values, values_step, KEYS, HEAD, EACH)
    top = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    mixed = tl.zeros((QUERIES, HEAD), tl.float32)
    top, total, mixed = _fold(q_tile, k, v, added, top, total, mixed, scale)
    for first in range(KEYS, count, KEYS):
        k, added = _keys(first, count, i, queries, keys, hidden, keys_step, hidden_step, hidden_key, KEYS, HEAD, EACH)
        v, added = _values(first, added, values, values_step, KEYS, HEAD, EACH)
        top, total, mixed = _fold(q_tile, k, v, added, top, total, mixed, scale)
    mixed = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
    step = heads * HEAD
    found = out + row * queries * step + i[:, None] * step + head * HEAD + d[None, :]
    tl.store(found, mixed.to(q_tile.dtype), mask=asked[:, None])


def extend(
    packed: Tensor,
    slots: Tensor,
    keys: Tensor,
    values: Tensor,
    lines: Tensor | None = None,
    scale: float | None = None,
    whole: bool = False,
    paths: Tensor | None = None,
    local: int = 0,
) -> Tensor:
    """packed [rows, step, 3 * width], contiguous, goes to slots [rows, step], each row's side by side, of the caches
    [rows, heads, longest, head], which are written; what is before them lies in the rows that lines [rows, longest]
    name, or in their own. Slots see no later ones or, with `whole`, all of their step; where they are a tree, those
    above them on its paths [rows, step, 1 + step] (:func:`longstride.ops.draft_tree.tree_paths`);
    `local`: attention is, in blocks of so many slots.
    -> mixed values [rows, step, width]"""
    rows, step, width = packed.shape[0], packed.shape[1], packed.shape[2] // 3
    heads, longest, head = keys.shape[1:]
    out = packed.new_empty((rows, step, width))
    _extend[(rows, heads, triton.cdiv(step, _QUERIES) if paths is None else step)](
        *(packed, slots, slots if lines is None else lines, slots if paths is None else paths.contiguous()),
        *(keys, values, out),
        *(step, longest, slots.stride(0), 0 if lines is None else lines.stride(0), heads),
        *(*keys.stride()[:2], *values.stride()[:2], _scale(scale, head)),
        QUERIES=_QUERIES,
        KEYS=WALK.keys,
        HEAD=head,
        LINED=lines is not None,
        WHOLE=whole,
        TREE=paths is not None,
        LOCAL=local,
        num_warps=WALK.warps,
        num_stages=1,
        **launching(packed),
    )
    return out


def read(q: Tensor, keys: Tensor, values: Tensor, hidden: Tensor, each: bool, scale: float | None = None) -> Tensor:
    """q [rows, queries, width] over keys and values [rows, heads, count, head], each with its last dimension dense;
    hidden [rows, heads or 1, queries or 1, count], however it lies (a bias by distance has its heads last), is added to
    scores, with `each` query's its own.
    -> mixed values [rows, queries, width]"""
    rows, queries, width = q.shape
    heads, count, head = keys.shape[1:]
    hidden = hidden.expand(rows, heads, queries if each else 1, count)
    out = q.new_empty((rows, queries, width))
    _read[(rows, heads, triton.cdiv(queries, _QUERIES))](
        *(q, keys, values, hidden, out),
        *(queries, count, heads),
        *(*q.stride()[:2], *keys.stride()[:3], *values.stride()[:3]),
        *(*hidden.stride(), _scale(scale, head)),
        QUERIES=_QUERIES,
        KEYS=WALK.keys,
        HEAD=head,
        EACH=each,
        num_warps=WALK.warps,
        num_stages=1,
        **launching(q),
    )
    return out


def _scale(scale: float | None, head: int) -> float:
    """What products of queries and keys are multiplied by, for powers of 2."""
    return (head**-0.5 if scale is None else scale) * _LOG2_E


# --- as operations ---------------------------------------------------------------------------------------------------


def causal(packed, keys, values, slots, bias, heads, indirection=None, asked=None, scale=None) -> Tensor:
    """ops.cached_attention of causal steps: mixed values depend neither on the step's width nor on how long the caches
    are. With an indirection, no step may write where another row of it reads. Of steps whose slots see each other
    too, of trees, whose slots see their ancestors, and of local attention."""
    paths = bias.paths if isinstance(bias, TreeCausal) else None
    local, whole = bias.block if isinstance(bias, LocalCausal) else 0, type(bias) is BlockCausal
    mixed = extend(packed.contiguous(), slots, keys, values, indirection, scale, whole, paths, local)
    return mixed if asked is None else mixed[:, asked[0] : asked[1]]


def masked(packed, keys, values, slots, bias, heads, indirection=None, asked=None, scale=None) -> Tensor:
    """ops.cached_attention with any mask, written by PyTorch and read by a kernel"""
    write_cache(packed, keys, values, slots)
    added = bias_over(bias, keys.shape[2])
    keys, values = read_cache(keys, values, slots, added.shape[-1], indirection)
    queries = packed.chunk(3, dim=-1)[0]
    if asked is not None:
        queries, added = queries[:, asked[0] : asked[1]], added[:, :, asked[0] : asked[1]]
    return read(queries, keys, values, added, True, scale)


def attention(queries, keys, values, mask, heads, dropout=0.0, scale=None) -> Tensor:
    """ops.attention over a source; what no query sees may hold anything"""
    return read(queries, keys, values, mask, False, scale)
