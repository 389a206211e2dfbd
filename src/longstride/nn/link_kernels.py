"""Triton kernels of a link's chain: the best candidates of every slot, and the walk along them.

Candidates are found by many small programs, each with some classes of one slot. The walk is one program a row. What it
reads for a slot depends on the slot's candidates alone, not on which of them is chosen: rows of both tables for every
candidate are under way some slots ahead, and from one choice to the next there is arithmetic only.

Imports Triton, so only what has a CUDA device imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from longstride.nn.overlap import launching
from longstride.nn.overlap_kernels import begin, wait

_CLASSES = 16
"""of a program that looks for candidates"""
_TURNS = 512
"""ids of each class that it sees at a time, at most"""
_LEAST = 16
"""of what a tile is padded to"""
_AHEAD = 64 * 1024
"""bytes of the tables' rows that the walk has under way at most, in shared memory"""
_STAGES = 5
"""slots that it has under way at most, and one"""


@triton.jit(do_not_specialize=("block",))
def _best(
    logits,
    values,
    ids,
    block,
    logits_row,
    logits_slot,
    vocabulary,
    classes,
    TURNS: tl.constexpr,
    CLASSES: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Of one slot's logits, the largest of each of CLASSES classes of ids that are equal modulo `classes`.

    logits [rows, block, vocabulary]; values and ids [rows, block, classes]. Of equal ones the first counts, and what is
    no number counts as the least: ids are those of the vocabulary, whatever the logits are.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    at = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * CLASSES + tl.arange(0, CLASSES)
    turn = tl.arange(0, TURNS)
    slot = logits + (at // block) * logits_row + (at % block) * logits_slot
    best = tl.full((CLASSES,), float("-inf"), tl.float32)
    which = c
    for first in range(0, vocabulary, TURNS * classes):
        token = first + turn[:, None] * classes + c[None, :]
        inside = (token < vocabulary) & (c < classes)[None, :]
        some = tl.load(slot + token, mask=inside, other=float("-inf")).to(tl.float32)
        some = tl.where(some == some, some, float("-inf"))
        top, place = tl.max(some, 0, return_indices=True)
        which = tl.where(top > best, first + place * classes + c, which)
        best = tl.maximum(best, top)
    tl.store(values + at * classes + c, best, mask=c < classes)
    tl.store(ids + at * classes + c, which, mask=c < classes)


@triton.jit(do_not_specialize=("block",))
def _walk(
    values,
    ids,
    gate,
    newest,
    before,
    after,
    previous,
    asked,
    block,
    classes,
    rank,
    CLASSES: tl.constexpr,
    RANK: tl.constexpr,
    STAGES: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """From newest [rows] along the best candidates, values and ids [rows, block, classes].

    gate [rows, block, rank]; before and after [vocabulary, rank]. Written: previous [rows, block], the token before
    each slot, and asked [rows, block, rank], what it says there.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, CLASSES)
    r = tl.arange(0, RANK)
    real = c < classes
    wide = r < rank
    inside = real[:, None] & wide[None, :]
    chosen = tl.load(newest + row)
    said = tl.load(before + chosen * rank + r, mask=wide, other=0.0).to(tl.float32)
    for slot in tl.range(0, block, num_stages=STAGES):
        at = row * block + slot
        token = tl.load(ids + at * classes + c, mask=real, other=0)
        value = tl.load(values + at * classes + c, mask=real, other=float("-inf"))
        weigh = tl.load(gate + at * rank + r, mask=wide, other=0.0).to(tl.float32)
        met = tl.load(after + token[:, None] * rank + r[None, :], mask=inside, other=0.0).to(tl.float32)
        says = tl.load(before + token[:, None] * rank + r[None, :], mask=inside, other=0.0).to(tl.float32)
        asks = (said * (1.0 + weigh)).to(asked.dtype.element_ty)
        tl.store(previous + at, chosen)
        tl.store(asked + at * rank + r, asks, mask=wide)
        score = value + tl.sum(met * asks.to(tl.float32)[None, :], 1)
        score = tl.where(score == score, score, float("-inf"))
        mine = c == tl.argmax(score, 0)
        chosen = tl.sum(tl.where(mine, token, 0), 0).to(tl.int64)
        said = tl.sum(tl.where(mine[:, None], says, 0.0), 0)


def best_of_classes(logits: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """[rows, block, vocabulary], the last dimension dense -> values and ids [rows, block, classes],
    in float32 and int32"""
    rows, block, vocabulary = logits.shape
    values = torch.empty((rows, block, classes), dtype=torch.float32, device=logits.device)
    ids = torch.empty((rows, block, classes), dtype=torch.int32, device=logits.device)
    turns = min(_TURNS, max(_LEAST, triton.next_power_of_2(triton.cdiv(vocabulary, classes))))
    _best[(rows * block, triton.cdiv(classes, _CLASSES))](
        *(logits, values, ids),
        *(block, *logits.stride()[:2], vocabulary, classes),
        TURNS=turns,
        CLASSES=_CLASSES,
        num_warps=max(1, turns // 64),
        num_stages=1,
        **launching(logits),
    )
    return values, ids


def walk(
    values: Tensor, ids: Tensor, gate: Tensor, newest: Tensor, before: Tensor, after: Tensor
) -> tuple[Tensor, Tensor]:
    """Candidates [rows, block, classes], gate [rows, block, rank], newest [rows], before and after [vocabulary, rank],
    all contiguous -> the token before each slot [rows, block], and what it asks for [rows, block, rank]"""
    rows, block, classes = ids.shape
    rank = before.shape[1]
    previous = torch.empty((rows, block), dtype=torch.int64, device=ids.device)
    asked = torch.empty_like(gate)
    wide, high = (max(_LEAST, triton.next_power_of_2(size)) for size in (rank, classes))
    both = 2 * wide * high * before.element_size()
    _walk[(rows,)](
        *(values, ids, gate, newest, before, after, previous, asked),
        *(block, classes, rank),
        CLASSES=high,
        RANK=wide,
        STAGES=max(2, min(_STAGES, 1 + _AHEAD // both)),
        num_warps=8 if wide > 64 else 4,
        **launching(ids),
    )
    return previous, asked
