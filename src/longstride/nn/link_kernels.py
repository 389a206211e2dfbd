"""Triton kernels of a link's chain: the best candidates of every slot, and the walk along them.

Candidates are found by many small programs, each with some classes of one slot. The walk is one program a row. What it
gathers from memory for a slot depends on the slot's candidates alone, not on which of them is chosen, and is under way
before the choice falls: from one choice to the next there is arithmetic only, no look into memory.

Imports Triton, so only what has a CUDA device imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_CLASSES = 16
"""of a program that looks for candidates"""
_TURNS = 512
"""ids of each class that it sees at a time, at most"""
_LEAST = 16
"""of what a tile is padded to"""


@triton.jit
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
):
    """Of one slot's logits, the largest of each of CLASSES classes of ids that are equal modulo `classes`.

    logits [rows, block, vocabulary]; values and ids [rows, block, classes]. Of equal ones the first counts, and what is
    no number counts as the least: ids are those of the vocabulary, whatever the logits are.
    """
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
    tl.store(values + at * classes + c, best.to(values.dtype.element_ty), mask=c < classes)
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
):
    """From newest [rows] along the best candidates, values and ids [rows, block, classes].

    gate [rows, block, rank]; before and after [vocabulary, rank]. Written: previous [rows, block], the token before
    each slot, and asked [rows, block, rank], what it says there.
    """
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, CLASSES)
    r = tl.arange(0, RANK)
    real = c < classes
    wide = r < rank
    inside = real[:, None] & wide[None, :]
    kind = asked.dtype.element_ty
    chosen = tl.load(newest + row)
    said = tl.load(before + chosen * rank + r, mask=wide, other=0.0).to(tl.float32)
    token = tl.load(ids + row * block * classes + c, mask=real, other=0)
    met = tl.load(after + token[:, None] * rank + r[None, :], mask=inside, other=0.0)
    for slot in range(block):
        at = row * block + slot
        weigh = tl.load(gate + at * rank + r, mask=wide, other=0.0).to(tl.float32)
        value = tl.load(values + at * classes + c, mask=real, other=float("-inf")).to(tl.float32)
        says = tl.load(before + token[:, None] * rank + r[None, :], mask=inside, other=0.0)
        more = slot + 1 < block
        next_token = tl.load(ids + (at + 1) * classes + c, mask=real & more, other=0)
        next_met = tl.load(after + next_token[:, None] * rank + r[None, :], mask=inside & more, other=0.0)

        asks = (said * (1.0 + weigh)).to(kind)
        tl.store(previous + at, chosen)
        tl.store(asked + at * rank + r, asks, mask=wide)
        score = value + tl.sum(met.to(tl.float32) * asks.to(tl.float32)[None, :], 1)
        score = tl.where(score == score, score, float("-inf"))
        mine = c == tl.argmax(score, 0)
        chosen = tl.sum(tl.where(mine, token, 0), 0).to(tl.int64)
        said = tl.sum(tl.where(mine[:, None], says.to(tl.float32), 0.0), 0)
        token = next_token
        met = next_met


def best_of_classes(logits: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """[rows, block, vocabulary], the last dimension dense -> values and ids [rows, block, classes], ids as int32"""
    rows, block, vocabulary = logits.shape
    values = logits.new_empty((rows, block, classes))
    ids = torch.empty((rows, block, classes), dtype=torch.int32, device=logits.device)
    turns = min(_TURNS, max(_LEAST, triton.next_power_of_2(triton.cdiv(vocabulary, classes))))
    _best[(rows * block, triton.cdiv(classes, _CLASSES))](
        *(logits, values, ids),
        *(block, *logits.stride()[:2], vocabulary, classes),
        TURNS=turns,
        CLASSES=_CLASSES,
        num_warps=max(1, turns // 64),
        num_stages=1,
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
    padded = max(_LEAST, triton.next_power_of_2(rank))
    _walk[(rows,)](
        *(values, ids, gate, newest, before, after, previous, asked),
        *(block, classes, rank),
        CLASSES=max(_LEAST, triton.next_power_of_2(classes)),
        RANK=padded,
        num_warps=8 if padded > 64 else 4,
        num_stages=1,
    )
    return previous, asked
