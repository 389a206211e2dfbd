"""Triton kernels of a link's chain: the best candidates of every slot, how they follow each other, and the walk.

Candidates are found by many small programs, each with some classes of one slot. Which candidate is best after each of
the slot before is the same for all slots at once: one small product a slot. The walk, one program a row, then is no
more than looking up one number after another.

Imports Triton, so only what has a CUDA device imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from longstride.ops.chain import plus_product
from longstride.ops.cuda.link_candidates import best_products
from longstride.ops.cuda.overlap import begin, launching, wait

_CLASSES = 16
"""of a program that looks for candidates"""
_TURNS = 512
"""ids of each class that it sees at a time, at most"""
_LEAST = 16
"""of what a tile is padded to"""
_EARLIER = 32
"""candidates of the slot before that a program compares with all of its own"""


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


@triton.jit
def _of_chunks(values, ids, at, c, real, classes, chunks, CHUNKS: tl.constexpr):
    """Of a slot's values and ids [chunks, classes], the best of every class; of equal ones the first chunk's."""
    h = tl.arange(0, CHUNKS)
    place = (at * chunks + h[:, None]) * classes + c[None, :]
    inside = (h < chunks)[:, None] & real[None, :]
    value, which = tl.max(tl.load(values + place, mask=inside, other=float("-inf")), 0, return_indices=True)
    names = tl.load(ids + place, mask=inside, other=0)
    return value, tl.sum(tl.where(h[:, None] == which[None, :], names, 0), 0)


@triton.jit(do_not_specialize=("block", "newest_row"))
def _pairs(
    values,
    ids,
    gate,
    newest,
    before,
    after,
    onward,
    kept,
    block,
    classes,
    rank,
    newest_row,
    chunks,
    CLASSES: tl.constexpr,
    EARLIER: tl.constexpr,
    CHUNKS: tl.constexpr,
    RANK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One slot: after EARLIER candidates of the slot before, which of its own is best, onward [rows, block, classes].

    values and ids [rows, block, chunks, classes]: the best of all chunks are the candidates, and kept [rows, block,
    classes] their ids, where there is more than one chunk. gate [rows, block, rank]; before and after [vocabulary,
    rank]. Before the first slot there is newest [rows], as if all candidates were that.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    at = tl.program_id(0).to(tl.int64)
    row, slot = at // block, at % block
    c = tl.arange(0, CLASSES)
    e = tl.program_id(1) * EARLIER + tl.arange(0, EARLIER)
    r = tl.arange(0, RANK)
    real = c < classes
    of_earlier = e < classes
    wide = r < rank
    value, token = _of_chunks(values, ids, at, c, real, classes, chunks, CHUNKS)
    _, earlier = _of_chunks(values, ids, at - 1, e, of_earlier & (slot > 0), classes, chunks, CHUNKS)
    first = tl.load(newest + row * newest_row)
    weigh = tl.load(gate + at * rank + r, mask=wide, other=0.0).to(tl.float32)
    earlier = tl.where(slot > 0, earlier.to(tl.int64), first)
    met = tl.load(after + token[:, None] * rank + r[None, :], mask=real[:, None] & wide[None, :], other=0.0)
    says = tl.load(before + earlier[:, None] * rank + r[None, :], mask=of_earlier[:, None] & wide[None, :], other=0.0)
    asks = (says.to(tl.float32) * (1.0 + weigh)[None, :]).to(gate.dtype.element_ty)
    score = tl.dot(asks, tl.trans(met), input_precision="ieee") + value[None, :]
    score = tl.where(score == score, score, float("-inf"))
    tl.store(onward + at * classes + e, tl.argmax(score, 1).to(tl.int32), mask=of_earlier)
    if CHUNKS > 1:
        tl.store(kept + at * classes + c, token, mask=real & (tl.program_id(1) == 0))


@triton.jit(do_not_specialize=("block",))
def _walk(
    ids,
    gate,
    newest,
    before,
    onward,
    previous,
    asked,
    block,
    classes,
    rank,
    BLOCK: tl.constexpr,
    RANK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """From newest [rows] along the best candidates, of ids [rows, block, classes]; all else as in `_pairs`.

    Written: previous [rows, block], the token before each slot, and asked [rows, block, rank], what it says there.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, BLOCK)
    r = tl.arange(0, RANK)
    inside = (s < block)[:, None] & (r < rank)[None, :]
    weigh = tl.load(gate + (row * block + s)[:, None] * rank + r[None, :], mask=inside, other=0.0).to(tl.float32)
    chosen = tl.where(s == 0, tl.load(newest + row), 0)
    which = tl.load(onward + row * block * classes)
    for slot in range(1, block):
        at = (row * block + slot) * classes
        token = tl.load(ids + at - classes + which)
        which = tl.load(onward + at + which)
        chosen = tl.where(s == slot, token.to(tl.int64), chosen)
    said = tl.load(before + chosen[:, None] * rank + r[None, :], mask=inside, other=0.0).to(tl.float32)
    asks = (said * (1.0 + weigh)).to(asked.dtype.element_ty)
    tl.store(previous + row * block + s, chosen, mask=s < block)
    tl.store(asked + (row * block + s)[:, None] * rank + r[None, :], asks, mask=inside)


@triton.jit(do_not_specialize=("block", "tokens_row", "tokens_slot"))
def _follow(
    ids,
    onward,
    tokens,
    count,
    block,
    classes,
    tokens_row,
    tokens_slot,
    BLOCK: tl.constexpr,
    CLASSES: tl.constexpr,
    COUNTED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One row: the tokens that the walk along ids and onward [rows, block, classes] meets.

    All of onward is asked for at once, and the walk then goes from register to register: where each look is for memory
    to answer, they take longer than all else here.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, BLOCK)
    c = tl.arange(0, CLASSES)
    first = onward + row * block * classes
    steps = (tl.load(first + c, mask=c < classes, other=0),)
    for slot in tl.static_range(1, BLOCK):
        steps = steps + (tl.load(first + slot * classes + c, mask=(c < classes) & (slot < block), other=0),)  # noqa: RUF005
    which = tl.sum(tl.where(c == 0, steps[0], 0), 0)
    places = tl.where(s == 0, which, 0)
    for slot in tl.static_range(1, BLOCK):
        which = tl.sum(tl.where(c == which, steps[slot], 0), 0)
        places = tl.where(s == slot, which, places)
    found = tl.load(ids + (row * block + s) * classes + places, mask=s < block, other=0)
    tl.store(tokens + row * tokens_row + s * tokens_slot, found.to(tl.int64), mask=s < block)
    if COUNTED:
        tl.store(count + row, block.to(tl.int64))


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


def pairs(
    values: Tensor, ids: Tensor, gate: Tensor, newest: Tensor, before: Tensor, after: Tensor
) -> tuple[Tensor, Tensor]:
    """Candidates [rows, block, chunks, classes], gate [rows, block, rank], before and after [vocabulary, rank], all
    contiguous, newest [rows] -> the ids of the best of all chunks, and which candidate of a slot is best after each of
    the slot before it, both [rows, block, classes]"""
    rows, block, chunks, classes = ids.shape
    rank = before.shape[1]
    onward = ids.new_empty((rows, block, classes))
    kept = torch.empty_like(onward) if chunks > 1 else ids.view_as(onward)
    _pairs[(rows * block, triton.cdiv(classes, _EARLIER))](
        *(values, ids, gate, newest, before, after, onward, kept),
        *(block, classes, rank, newest.stride(0), chunks),
        CLASSES=_padded(classes),
        EARLIER=_EARLIER,
        CHUNKS=triton.next_power_of_2(chunks),
        RANK=_padded(rank),
        num_warps=4,
        **launching(ids),
    )
    return kept, onward


def follow(ids: Tensor, onward: Tensor, into: Tensor | None = None, count: Tensor | None = None) -> Tensor:
    """Candidates and which of them is best after which, both [rows, block, classes], contiguous -> the tokens of the
    chain [rows, block], put `into` a tensor if one is given; `count` [rows], contiguous, is told how many there are"""
    rows, block, classes = ids.shape
    tokens = torch.empty((rows, block), dtype=torch.int64, device=ids.device) if into is None else into
    _follow[(rows,)](
        *(ids, onward, tokens, count),
        *(block, classes, *tokens.stride()),
        BLOCK=triton.next_power_of_2(block),
        CLASSES=_padded(classes),
        COUNTED=count is not None,
        num_warps=1,
        **launching(ids),
    )
    return tokens


def _padded(size: int) -> int:
    return max(_LEAST, triton.next_power_of_2(size))


def walk(
    values: Tensor, ids: Tensor, gate: Tensor, newest: Tensor, before: Tensor, after: Tensor
) -> tuple[Tensor, Tensor]:
    """Candidates [rows, block, classes], gate [rows, block, rank], newest [rows], before and after [vocabulary, rank],
    all contiguous -> the token before each slot [rows, block], and what it asks for [rows, block, rank]"""
    rows, block, classes = ids.shape
    rank = before.shape[1]
    previous = torch.empty((rows, block), dtype=torch.int64, device=ids.device)
    asked, onward = torch.empty_like(gate), pairs(values[:, :, None], ids[:, :, None], gate, newest, before, after)[1]
    _walk[(rows,)](
        *(ids, gate, newest, before, onward, previous, asked),
        *(block, classes, rank),
        BLOCK=triton.next_power_of_2(block),
        RANK=_padded(rank),
        num_warps=4,
        **launching(ids),
    )
    return previous, asked


# --- as operations ---------------------------------------------------------------------------------------------------


def walked(logits, gate, newest, before, after, candidates) -> tuple[Tensor, Tensor]:
    """The chain of logits [rows, block, vocabulary] after newest [rows]; gate [rows, block, rank] as the states give
    it. -> the token before each slot [rows, block], and what it asks for [rows, block, rank]"""
    values, ids = best_of_classes(_dense(logits), candidates)
    return walk(values, ids, gate.contiguous(), newest.contiguous(), before.contiguous(), after.contiguous())


def chain_logits(logits, gate, newest, before, after, few, many) -> Tensor:
    """ops.chain_logits, with as many candidates as cost next to nothing here"""
    return plus_product(logits, walked(logits, gate, newest, before, after, many)[1], after)


def chain_tokens(logits, gate, newest, before, after, few, many, again=False, into=None, count=None) -> Tensor:
    """ops.chain_tokens likewise; newest need not lie side by side"""
    values, ids = (best[:, :, None] for best in best_of_classes(_dense(logits), many))
    return follow(*pairs(values, ids, gate.contiguous(), newest, before.contiguous(), after.contiguous()), into, count)


def chain_tokens_of_states(
    hidden, weight, gate_weight, newest, before, after, few, many, again=False, into=None, count=None
) -> Tensor:
    """ops.chain_tokens_of_states: logits are not written"""
    best = best_products(hidden.flatten(0, 1).contiguous(), weight.contiguous(), gate_weight.contiguous(), many)
    values, ids, gate = (one.view(*hidden.shape[:2], *one.shape[1:]) for one in best)
    return follow(*pairs(values, ids, gate, newest, before.contiguous(), after.contiguous()), into, count)


def _dense(logits: Tensor) -> Tensor:
    return logits if logits.stride(-1) == 1 else logits.contiguous()
