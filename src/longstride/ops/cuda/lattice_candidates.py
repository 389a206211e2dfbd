"""Triton kernels that propose words from tables: look up, add up equal words, choose the best.

Tensor code does this with a sort, two running sums and a selection, some seventy kernels in all. Here every entry that
was looked up is compared with every other of its column, twice: once to add up equal words, once to count how many
sums are larger, which is the place that a word has among the best. Entries and then sums stand side by side, in
whatever order programs come, so that only as many are compared as there are. All of it is in integers, so that results
are those of the slow twin (`tables.Tables.best`), to the bit, whatever the order. Each step is a kernel of its own,
because it reads what many programs of the last one wrote.

Imports Triton, so only what has a CUDA device imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from longstride.contract import PAD
from longstride.ops.cuda.overlap import begin, launching, wait

_MINE, _OTHERS = 32, 64
"""entries that a program places, and compares them with at a time; the first divide the second"""
_ALIGNED = 16
"""Counts begin at a multiple of so many, since for other places a kernel would be compiled anew."""
_LEAST_K = 64
"""Smaller ones share what is compiled."""


@triton.jit(do_not_specialize=("columns", "source_row", "length_row"))
def _look_up(
    source,
    length,
    first,
    size,
    total,
    table_words,
    table_counts,
    places,
    words,
    amounts,
    filled,
    columns,
    width,
    source_row,
    length_row,
    slots,
    reach,
    longest,
    target,
    keep,
    WIDTH: tl.constexpr,
    KEEP: tl.constexpr,
    ONE: tl.constexpr,
    PAD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One source word, or none, and one column: appends words and how much they are worth there to words and amounts
    [rows, columns, (1 + width) * keep], of which filled [rows, columns] are in use."""
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(2).to(tl.int64)
    column = tl.program_id(1)
    a = tl.program_id(0)  # 0 is "none"
    every = tl.arange(0, WIDTH)
    among = tl.load(length + row * length_row) - 1
    seen = places + (among * target + column) * (longest + 1)
    together = tl.sum(tl.load(seen + every, mask=every <= width, other=0).to(tl.int64), 0)
    mine = tl.load(seen + a).to(tl.float64)
    weight = mine / tl.maximum(together, 1).to(tl.float64)

    token = tl.load(source + row * source_row + a - 1, mask=a > 0, other=PAD)
    apart = tl.minimum(tl.maximum(a - 1 - column, -reach), reach) + reach + 1
    key = tl.where(a > 0, token * slots + apart, PAD)
    scale = weight * ONE / tl.maximum(tl.load(total + key), 1).to(tl.float64)
    kept = tl.where(weight > 0.0, tl.load(size + key).to(tl.int32), 0)
    rank = tl.arange(0, KEEP)
    entry = tl.load(first + key).to(tl.int64) + rank
    held = rank < kept
    count = tl.load(table_counts + entry, mask=held, other=0).to(tl.float64)
    amount = tl.ceil(count * scale).to(tl.int64)  # rounded up, so that no word whose probability is not 0 is lost
    word = tl.load(table_words + entry, mask=held, other=-1).to(tl.int32)
    here = row * columns + column
    at = here * (1 + width) * keep + tl.atomic_add(filled + here, kept) + rank
    tl.store(amounts + at, amount, mask=held)
    tl.store(words + at, tl.where(amount > 0, word, -1), mask=held)


@triton.jit
def _same(mine, words, amounts, begun, count, OTHERS: tl.constexpr):
    """Whether OTHERS entries from `begun` on are the same words, [mine, OTHERS], and how much these are worth."""
    other = begun + tl.arange(0, OTHERS)
    theirs = tl.load(words + other, mask=other < count, other=-2)
    worth = tl.load(amounts + other, mask=other < count, other=0)
    return mine[:, None] == theirs[None, :], worth


@triton.jit(do_not_specialize=("entries", "fallback"))
def _add_up(
    words,
    amounts,
    filled,
    sums,
    summed,
    ids,
    scores,
    entries,
    k,
    fallback,
    fallback_score,
    MINE: tl.constexpr,
    OTHERS: tl.constexpr,
    K: tl.constexpr,
    ID_BITS: tl.constexpr,
    PAD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Some entries of a column: the sum of all that are the same word, with the word itself, by the first of them.

    words and amounts [columns, entries], of which filled [columns] are there, -> appended to sums [columns, entries],
    of which summed [columns] are in use. Of ids and scores [columns, k] the first program of a column makes what they
    are where there are fewer words than k, and in the first place where there is none.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    column = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * MINE + tl.arange(0, MINE)
    j = tl.arange(0, OTHERS)
    words += column * entries
    amounts += column * entries
    count = tl.load(filled + column)
    mine = tl.load(words + i, mask=i < count, other=-1)
    total = tl.zeros((MINE, OTHERS), tl.int64)
    earlier = tl.zeros((MINE, OTHERS), tl.int32)
    end = tl.where(tl.max(mine, 0) >= 0, count, 0)  # often enough there is nothing at all
    # Which of two is earlier has to be asked in one's own tile alone.
    own = tl.program_id(1) * MINE // OTHERS * OTHERS
    for begun in range(0, tl.minimum(own, end), OTHERS):
        same, worth = _same(mine, words, amounts, begun, count, OTHERS)
        total += tl.where(same, worth[None, :], 0)
        earlier |= same.to(tl.int32)
    for begun in range(own, tl.minimum(own + OTHERS, end), OTHERS):
        same, worth = _same(mine, words, amounts, begun, count, OTHERS)
        total += tl.where(same, worth[None, :], 0)
        earlier |= (same & ((begun + j)[None, :] < i[:, None])).to(tl.int32)
    for begun in range(own + OTHERS, end, OTHERS):
        same, worth = _same(mine, words, amounts, begun, count, OTHERS)
        total += tl.where(same, worth[None, :], 0)
    largest: tl.constexpr = (1 << ID_BITS) - 1
    ranked = (tl.sum(total, 1) << ID_BITS) + (largest - mine).to(tl.int64)
    counts = ((mine >= 0) & (tl.max(earlier, 1) == 0)).to(tl.int32)
    at = tl.atomic_add(summed + column, tl.sum(counts, 0)) + tl.cumsum(counts, 0) - 1
    tl.store(sums + column * entries + at, ranked, mask=counts > 0)

    place = tl.arange(0, K)
    begins = place < tl.where(tl.program_id(1) == 0, k, 0)
    tl.store(ids + column * k + place, tl.where(place == 0, fallback, PAD).to(tl.int64), mask=begins)
    nothing = tl.where(place == 0, fallback_score, float("-inf")).to(tl.float32)
    tl.store(scores + column * k + place, nothing, mask=begins)


@triton.jit(do_not_specialize=("entries",))
def _choose(
    sums,
    summed,
    ids,
    scores,
    entries,
    k,
    MINE: tl.constexpr,
    OTHERS: tl.constexpr,
    ID_BITS: tl.constexpr,
    ONE: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Some entries of a column, each into the place that as many larger sums leave for it: ids and scores [columns, k]

    No two sums are equal, because the words are in them.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    column = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * MINE + tl.arange(0, MINE)
    j = tl.arange(0, OTHERS)
    sums += column * entries
    count = tl.load(summed + column)
    mine = tl.load(sums + i, mask=i < count, other=0)
    larger = tl.zeros((MINE, OTHERS), tl.int32)
    end = tl.where(tl.max(mine, 0) > 0, count, 0)
    for begun in range(0, end, OTHERS):
        theirs = tl.load(sums + begun + j, mask=begun + j < count, other=0)
        larger += (theirs[None, :] > mine[:, None]).to(tl.int32)
    place = tl.sum(larger, 1)
    stands = (mine > 0) & (place < k)
    largest: tl.constexpr = (1 << ID_BITS) - 1
    share = (mine >> ID_BITS).to(tl.float64) / ONE
    tl.store(ids + column * k + place, largest - (mine & largest), mask=stands)
    tl.store(scores + column * k + place, tl.log(tl.where(stands, share, 1.0)).to(tl.float32), mask=stands)


def proposed(
    source: Tensor,
    length: Tensor,
    tables: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor],
    columns: int,
    k: int,
    shape: tuple[int, int, int],
    fixed: tuple[int, int],
    fallback: int | None,
) -> tuple[Tensor, Tensor]:
    """source [rows, width] and length [rows]; tables: first, size, total, words, counts, places, each contiguous.

    shape: slots of a source word, how far they reach, and how many words a key keeps; fixed: what 1 is, and the bits of
    a word. A column without a candidate gets `fallback`, if there is one, with a score of 0.
    -> ids [rows, columns, k] int64, log_scores [rows, columns, k] float32
    """
    (rows, width), device = source.shape, source.device
    slots, reach, keep = shape
    one, id_bits = fixed
    *entries_of, places = tables
    entries = (1 + width) * keep
    words = torch.empty((rows, columns, entries), dtype=torch.int32, device=device)
    amounts = torch.empty((rows, columns, entries), dtype=torch.int64, device=device)
    sums = torch.empty_like(amounts)
    room = -(-rows * columns // _ALIGNED) * _ALIGNED
    filled, summed = torch.zeros((2, room), dtype=torch.int32, device=device)
    ids = torch.empty((rows, columns, k), dtype=torch.int64, device=device)
    scores = torch.empty((rows, columns, k), dtype=torch.float32, device=device)
    _look_up[(1 + width, columns, rows)](
        *(source, length, *entries_of, places, words, amounts, filled),
        *(columns, width, source.stride(0), length.stride(0), slots, reach),
        *(places.shape[2] - 1, places.shape[1], keep),
        WIDTH=triton.next_power_of_2(1 + width),
        KEEP=triton.next_power_of_2(keep),
        ONE=one,
        PAD=PAD,
        num_warps=1,
        **launching(source),
    )
    grid = (rows * columns, triton.cdiv(entries, _MINE))
    _add_up[grid](
        *(words, amounts, filled, sums, summed, ids, scores, entries, k),
        *(PAD if fallback is None else fallback, float("-inf") if fallback is None else 0.0),
        MINE=_MINE,
        OTHERS=_OTHERS,
        K=max(_LEAST_K, triton.next_power_of_2(k)),
        ID_BITS=id_bits,
        PAD=PAD,
        **launching(source),
    )
    _choose[grid](
        *(sums, summed, ids, scores, entries, k),
        MINE=_MINE,
        OTHERS=_OTHERS,
        ID_BITS=id_bits,
        ONE=one,
        **launching(source),
    )
    return ids, scores
