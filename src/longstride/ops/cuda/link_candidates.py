"""A Triton kernel that finds the candidates of a draft in states, before anybody has written their logits.

A class's ids are rows of the output weight, `classes` apart, and each row lies together: a program has a stripe of one
class, multiplies it by the states and keeps the best of it. Logits of a whole vocabulary are neither written nor read
again. What the states say to the link itself, its gate, is the work of some more programs of the same launch.

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

_SLOTS = 16
"""The least that products on tensor cores take."""
_TURNS = 32
"""rows of the weight in a program's stripe; half as many of float32, since no tensor core does these products and more
would not find room in registers"""
_WARPS = 4
"""that have a share of the inputs each"""
_SHARE = 128
"""inputs of a warp at a time, at most"""
_LEAST = 16


@triton.jit
def _within(real, at, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """What is real and, where tiles are not whole, lies within the width."""
    if WIDTH % TILE == 0:
        return real
    else:  # noqa: RET505  # Triton has no other way to say it
        return real & (at < WIDTH)


@triton.jit(do_not_specialize=("slots",))
def _best_products(
    hidden,
    weight,
    gate_weight,
    values,
    ids,
    gate,
    slots,
    vocabulary,
    classes,
    rank,
    chunks,
    SLOTS: tl.constexpr,
    WIDTH: tl.constexpr,
    WARPS: tl.constexpr,
    SHARE: tl.constexpr,
    TURNS: tl.constexpr,
    BEST: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """hidden [slots, WIDTH] by TURNS rows of weight [vocabulary, WIDTH] whose ids are of one class: the BEST largest of
    them to values and ids [slots, chunks, BEST, classes]. Beyond the last class, by rows of gate_weight [rank, WIDTH]:
    all of them to gate [slots, rank].

    Of equal ones the first counts, and what is no number counts as the least: ids are those of the vocabulary, whatever
    the states are.
    """
    begin(OVERLAP)
    TILE: tl.constexpr = WARPS * SHARE
    c = tl.program_id(0)
    chunk = tl.program_id(1)
    turn = chunk * TURNS + tl.arange(0, TURNS)
    token = c + classes * turn
    part = tl.arange(0, WARPS)[:, None, None] * SHARE
    across = part + tl.arange(0, SHARE)[None, :, None]  # inputs as the weight has them, and below as the states do
    along = part + tl.arange(0, SHARE)[None, None, :]
    if c < classes:
        inside = token < vocabulary
        weight_from = weight + token.to(tl.int64)[None, None, :] * WIDTH + across
        stripe = tl.load(weight_from, mask=_within(inside[None, None, :], across, WIDTH, TILE), other=0.0)
    else:
        inside = turn < rank
        weight_from = gate_weight + turn.to(tl.int64)[None, None, :] * WIDTH + across
        stripe = tl.load(weight_from, mask=_within(inside[None, None, :], across, WIDTH, TILE), other=0.0)
    wait(OVERLAP)

    i = tl.program_id(2) * SLOTS + tl.arange(0, SLOTS)
    real = i < slots
    place = hidden + i[None, :, None] * WIDTH + along
    given = tl.load(place, mask=_within(real[None, :, None], along, WIDTH, TILE), other=0.0)
    total = tl.dot(given, stripe, input_precision="ieee")
    for first in range(TILE, WIDTH, TILE):
        some = tl.load(place + first, mask=_within(real[None, :, None], first + along, WIDTH, TILE), other=0.0)
        more = tl.load(weight_from + first, mask=_within(inside[None, None, :], first + across, WIDTH, TILE), other=0.0)
        total = tl.dot(some, more, total, input_precision="ieee")
    found = tl.sum(total, 0)

    if c < classes:
        found = tl.where(inside[None, :] & (found == found), found, float("-inf"))
        for best in tl.static_range(BEST):
            top, at = tl.max(found, 1, return_indices=True)
            which = c + classes * (chunk * TURNS + at)
            into = ((i * chunks + chunk) * BEST + best) * classes + c
            tl.store(values + into, top, mask=real)
            tl.store(ids + into, tl.where(which < vocabulary, which, c).to(tl.int32), mask=real)
            found = tl.where(tl.arange(0, TURNS)[None, :] == at[:, None], float("-inf"), found)
    else:
        said = found.to(gate.dtype.element_ty)
        tl.store(gate + i[:, None] * rank + turn[None, :], said, mask=real[:, None] & inside[None, :])


def best_products(
    hidden: Tensor, weight: Tensor, gate_weight: Tensor, classes: int, best: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """hidden [slots, width], weight [vocabulary, width], gate_weight [rank, width], all contiguous -> the `best` of
    every chunk of every class, values and ids [slots, chunks * best, classes] in float32 and int32, and the gate
    [slots, rank]"""
    (slots, width), vocabulary, rank = hidden.shape, weight.shape[0], gate_weight.shape[0]
    turns = _TURNS if hidden.element_size() < 4 else _TURNS // 2
    chunks = max(triton.cdiv(triton.cdiv(vocabulary, classes), turns), triton.cdiv(rank, turns))
    values = torch.empty((slots, chunks * best, classes), dtype=torch.float32, device=hidden.device)
    ids = torch.empty((slots, chunks * best, classes), dtype=torch.int32, device=hidden.device)
    gate = hidden.new_empty((slots, rank))
    share = min(_SHARE, max(_LEAST, triton.next_power_of_2(triton.cdiv(width, _WARPS))))
    _best_products[(classes + 1, chunks, triton.cdiv(slots, _SLOTS))](
        *(hidden, weight, gate_weight, values, ids, gate),
        *(slots, vocabulary, classes, rank, chunks),
        SLOTS=_SLOTS,
        WIDTH=width,
        WARPS=_WARPS,
        SHARE=share,
        TURNS=turns,
        BEST=best,
        num_warps=_WARPS,
        num_stages=2 if hidden.element_size() < 4 else 1,
        **launching(hidden),
    )
    return values, ids, gate
