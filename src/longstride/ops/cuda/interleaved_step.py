"""Triton kernels for what surrounds the model's layers in a captured step: one lays out what the first layer reads, one
program a slot; one commits what was chosen, one program a row.

They are twins of :meth:`..model.InterleavedModel.embed` and :meth:`..rows.Rows.commit`, which take some forty small
kernels for the same. What a slot or a row gives depends on no other.

Imports Triton, so only what has a CUDA device imports this. Knows no tables and no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from longstride.ops.cuda.overlap import begin, launching, wait

LEAST_COLUMNS = 32
"""One warp commits a row: a step of fewer slots leaves lanes idle, and compiles nothing new."""


@triton.jit(do_not_specialize=("step", "ids_row", "start_row"))
def _lay_out(
    ids,
    start,
    tokens,
    starts,
    places,
    x,
    slots,
    step,
    ids_row,
    start_row,
    scale,
    width,
    WIDTH: tl.constexpr,
    OWN: tl.constexpr,
    LEARNED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """x = places[slot] + scale * tokens[id]; with OWN the first step's slots have starts[slot] instead of a token, or
    nothing where there are none."""
    begin(OVERLAP)
    wait(OVERLAP)
    here = tl.program_id(0)
    row = (here // step).to(tl.int64)
    at = (here % step).to(tl.int64)
    token = tl.load(ids + row * ids_row + at)
    slot = tl.load(start + row * start_row) + at
    unit = tl.arange(0, WIDTH)
    inside = unit < width
    of_place = tl.load(places + slot * width + unit, mask=inside, other=0.0)
    # Rounded where each step would be a kernel of its own.
    of_token = tl.load(tokens + token * width + unit, mask=inside, other=0.0)
    read = (of_token.to(tl.float32) * scale).to(of_place.dtype)
    if OWN:
        first = slot < step
        own = tl.zeros((WIDTH,), of_place.dtype)
        if LEARNED:
            own = tl.load(starts + slot * width + unit, mask=unit < tl.where(first, width, 0), other=0.0)
        read = tl.where(first, own, read)
    both = read.to(tl.float32) + of_place.to(tl.float32)
    tl.store(x + here.to(tl.int64) * width + unit, both.to(of_place.dtype), mask=inside)
    tl.store(slots + here, slot)


@triton.jit(do_not_specialize=("step", "behind", "words_row"))
def _commit(
    top,
    top_logit,
    normaliser,
    anchors,
    words,
    ids,
    filled,
    length,
    log_probability,
    done,
    start,
    active,
    position,
    written,
    step,
    behind,
    words_row,
    COLUMNS: tl.constexpr,
    EOS: tl.constexpr,
    COUNT_DROPPED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One row: what was chosen goes to its words and is what the next step reads; it ends with the first EOS."""
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    inside = column < step
    compact = row * step + column
    was_done = tl.load(done + row)
    live = was_done == 0
    at = tl.load(filled + row)
    chosen = tl.load(top + compact, mask=inside, other=0)
    logit = tl.load(top_logit + compact, mask=inside, other=0.0)
    less = tl.load(normaliser + compact, mask=inside, other=0.0)
    anchor = tl.load(anchors + at + column, mask=inside, other=0)

    ends = (chosen == EOS) & inside
    end = tl.min(tl.where(ends, column, COLUMNS), axis=0)  # the first, or beyond all
    filling = tl.where(live, step, 0)  # slots
    kept = (column < filling) & (column <= end)
    scored = kept
    if COUNT_DROPPED:
        scored = column < filling
    gained = tl.sum(tl.where(scored, (logit - less).to(tl.float64), 0.0), axis=0)
    ended = (was_done != 0) | (end < COLUMNS)
    now = at + filling

    tl.store(words + row * words_row + at + column, chosen, mask=column < filling)
    tl.store(ids + compact, chosen, mask=inside)
    tl.store(filled + row, now)
    tl.store(length + row, tl.load(length + row) + tl.where(live, tl.minimum(end, step), 0))
    tl.store(log_probability + row, tl.load(log_probability + row) + gained)
    tl.store(done + row, ended.to(tl.uint8))
    tl.store(start + row, tl.where(ended, 0, now))  # idle rows idle at the front, where there is room
    tl.store(active + row, live.to(tl.uint8))
    tl.store(position + compact, tl.where(ends, behind, anchor), mask=inside)
    tl.store(written + compact, kept.to(tl.uint8), mask=inside)


def lay_out(
    ids: Tensor,
    start: Tensor,
    tokens: Tensor,
    scale: float,
    places: Tensor,
    own: bool,
    starts: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """ids [rows, step], a row's side by side, from start [rows] on; tokens [vocabulary, width], places [slots, width],
    contiguous. With `own` the first step does not read tokens but starts [step, width], or zeros.
    -> x [rows, step, width], slots [rows, step]"""
    (rows, step), width = ids.shape, tokens.shape[1]
    x = tokens.new_empty((rows, step, width))
    slots = torch.empty((rows, step), dtype=torch.int64, device=ids.device)
    tile = triton.next_power_of_2(width)
    with torch.cuda.device_of(ids):
        _lay_out[(rows * step,)](
            *(ids, start, tokens, places if starts is None else starts, places, x, slots),
            *(step, ids.stride(0), start.stride(0), scale, width),
            WIDTH=tile,
            OWN=own,
            LEARNED=starts is not None,
            num_warps=max(1, min(4, tile // 256)),
            enable_fp_fusion=False,  # a product and a sum, each rounded
            **launching(ids),
        )
    return x, slots


def commit(
    reading: tuple[Tensor, Tensor, Tensor],
    anchors: Tensor,
    words: Tensor,
    state: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor],
    behind: int,
    count_dropped: bool,
    eos: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """What was chosen [rows, step], its logits and normalisers; anchors [slots]; words [rows, slots]; `state`: ids
    [rows, step], filled, length, log-probabilities (float64), done (bool) and start [rows]. Words and state are
    written. -> active [rows], positions and what is written [rows, step]"""
    rows, step = reading[0].shape
    ids, filled, length, log_probability, done, start = state
    device = words.device
    active = torch.empty(rows, dtype=torch.bool, device=device)
    position = torch.empty((rows, step), dtype=torch.int64, device=device)
    written = torch.empty((rows, step), dtype=torch.bool, device=device)
    with torch.cuda.device_of(words):
        _commit[(rows,)](
            *(*(tensor.contiguous() for tensor in reading), anchors, words),
            *(ids, filled, length, log_probability, _bytes(done), start),
            *(_bytes(active), position, _bytes(written)),
            *(step, behind, words.stride(0)),
            COLUMNS=max(LEAST_COLUMNS, triton.next_power_of_2(step)),
            EOS=eos,
            COUNT_DROPPED=count_dropped,
            num_warps=1,
            **launching(words),
        )
    return active, position, written


def _bytes(flags: Tensor) -> Tensor:
    """Booleans as Triton reads and writes them."""
    return flags.view(torch.uint8)
