"""Triton kernels that find the candidates of a tree's slots in logits: the best two of each stripe of the vocabulary,
by many programs, then the best of these.

Imports Triton, so only what has a CUDA device imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from longstride.ops.cuda.overlap import begin, launching, wait

_LEAST = 16
"""of what a tile is padded to"""
_STRIPES, _TURNS = 512, 32
"""of ids, and ids of a stripe at a time"""
OF_EACH = 2
"""best of a stripe, at a time: a third among the best of so few ids is one that no tree has room for"""
_OF_A_WARP = 512
"""numbers that a warp has a share of, when candidates are chosen"""
_BITS = {torch.float32: 32, torch.float16: 19, torch.bfloat16: 16}
"""of a float32 that say all of a number of this type: its sign, 8 bits of exponent, and its digits"""


@triton.jit
def ordered(numbers):
    """float32 -> int32 in the same order; what is no number counts as the least there is"""
    numbers = tl.where(numbers == 0.0, 0.0, numbers)  # which has two signs
    bits = tl.where(numbers == numbers, numbers, float("-inf")).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit(do_not_specialize=("depth",))
def _best_two(
    logits,
    values,
    ids,
    depth,
    logits_row,
    logits_slot,
    vocabulary,
    stripes,
    chunks,
    TURNS: tl.constexpr,
    STRIPES: tl.constexpr,
    BEST: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Of one slot's logits, the BEST largest of TURNS ids of each of STRIPES stripes, whose ids are equal modulo
    `stripes`: values and ids [rows, depth, chunks, BEST, stripes]. Of equal ones the first counts, and what is no
    number counts as the least."""
    begin(OVERLAP)
    wait(OVERLAP)
    at = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * STRIPES + tl.arange(0, STRIPES)
    chunk = tl.program_id(2)
    turn = tl.arange(0, TURNS)
    token = (chunk * TURNS + turn)[:, None] * stripes + c[None, :]
    inside = (token < vocabulary) & (c < stripes)[None, :]
    slot = logits + (at // depth) * logits_row + (at % depth) * logits_slot
    some = tl.load(slot + token, mask=inside, other=float("-inf")).to(tl.float32)
    some = tl.where(some == some, some, float("-inf"))
    for best in tl.static_range(BEST):
        top, place = tl.max(some, 0, return_indices=True)
        which = (chunk * TURNS + place) * stripes + c
        into = ((at * chunks + chunk) * BEST + best) * stripes + c
        tl.store(values + into, top, mask=c < stripes)
        tl.store(ids + into, tl.where(which < vocabulary, which, c), mask=c < stripes)
        some = tl.where(turn[:, None] == place[None, :], float("-inf"), some)


@triton.jit(do_not_specialize=("depth",))
def _candidates(
    numbers,
    names,
    values,
    ids,
    many,
    count,
    MANY: tl.constexpr,
    BITS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """The `count` largest of one slot's numbers [rows, depth, many], of equal ones at the border the first, and their
    names, which lie as they do: values and ids [rows, depth, count].

    Bit by bit, of BITS, the largest number is found that so many are not below.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    at = tl.program_id(0).to(tl.int64)
    place_of = tl.arange(0, MANY)
    inside = place_of < many
    value = tl.load(numbers + at * many + place_of, mask=inside, other=float("-inf"))
    name = tl.load(names + at * many + place_of, mask=inside, other=0)
    key = tl.where(inside, ordered(value) >> (32 - BITS), -(1 << (BITS - 1)))
    border = tl.where(tl.sum((key >= 0).to(tl.int32), axis=0) >= count, 0, -(1 << (BITS - 1)))
    bit = 1 << (BITS - 2)
    for _ in range(BITS - 1):
        higher = border + bit
        border = tl.where(tl.sum((key >= higher).to(tl.int32), axis=0) >= count, higher, border)
        bit = bit >> 1
    larger = key > border
    equal = key == border
    # Two counts in one: there are fewer than 2^16 numbers.
    places = tl.cumsum(larger.to(tl.int32) + equal.to(tl.int32) * 65536, axis=0)
    among_larger = (places & 65535) - 1
    among_equal = ((places >> 16) & 65535) - 1 + tl.sum(larger.to(tl.int32), axis=0)
    place = tl.where(larger, among_larger, among_equal)
    chosen = inside & (larger | (equal & (among_equal < count)))
    tl.store(values + at * count + place, value, mask=chosen)
    tl.store(ids + at * count + place, name, mask=chosen)


def best_of_stripes(logits: Tensor) -> tuple[Tensor, Tensor]:
    """logits [rows, depth, vocabulary], the last dimension dense -> the best of each stripe of its ids, so many at a
    time: values and ids [rows, depth, n], in float32 and int32"""
    rows, depth, vocabulary = logits.shape
    stripes = min(_STRIPES, vocabulary)
    chunks = triton.cdiv(triton.cdiv(vocabulary, stripes), _TURNS)
    shape = (rows, depth, chunks * OF_EACH * stripes)
    values = torch.empty(shape, dtype=torch.float32, device=logits.device)
    ids = torch.empty(shape, dtype=torch.int32, device=logits.device)
    _best_two[(rows * depth, triton.cdiv(stripes, _LEAST), chunks)](
        *(logits, values, ids, depth, *logits.stride()[:2], vocabulary, stripes, chunks),
        TURNS=_TURNS,
        STRIPES=_LEAST,
        BEST=OF_EACH,
        num_warps=1,
        **launching(logits),
    )
    return values, ids


def candidates_of(numbers: Tensor, names: Tensor, count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The `count` largest of numbers [rows, depth, n] in float32, and their names, contiguous -> values and ids [rows,
    depth, count], in float32 and int32. Those that are equal as numbers of this type count as equal."""
    rows, depth, many = numbers.shape
    values, ids = (one.new_empty((rows, depth, count)) for one in (numbers, names))
    tile = max(_LEAST, triton.next_power_of_2(many))
    _candidates[(rows * depth,)](
        *(numbers, names, values, ids, many, count),
        MANY=tile,
        BITS=_BITS[dtype],
        num_warps=max(1, min(16, tile // _OF_A_WARP)),
        **launching(numbers),
    )
    return values, ids
