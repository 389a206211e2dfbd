"""Triton kernels for what lies between two model calls: one reads logits, one program a slot; one judges and commits,
one program a row.

They are twins of :mod:`longstride.verification.acceptance`, :mod:`longstride.verification.tree` and
:class:`longstride.engine.outputs.Outputs`, which take some forty small kernels for the same. What a slot gives
depends on that slot's logits alone, whatever the number of slots: tiles follow from the vocabulary.

Imports Triton, so only what has a CUDA device imports this. Knows no tables and no drafters.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from longstride.ops.cuda.overlap import begin, launching, wait
from longstride.ops.cuda.tree_slots import standing_path

LARGEST_TILE = 16384
"""Logits that a program holds at once: most vocabularies are one tile, read by one wave of loads."""
LEAST_COLUMNS = 32
"""One warp judges a row: a step of fewer slots leaves lanes idle, and compiles nothing new."""
KINDS = {"exact": 0, "top": 1, "distance": 2}


@triton.jit(do_not_specialize=("step", "min_length", "draft_row", "top_row"))
def _read(
    logits,
    permitted,
    start,
    longest,
    depth,
    draft,
    top,
    top_logit,
    normaliser,
    draft_logit,
    draft_rank,
    count,
    step,
    min_length,
    logits_row,
    logits_step,
    draft_row,
    top_row,
    VOCABULARY: tl.constexpr,
    TILE: tl.constexpr,
    EOS: tl.constexpr,
    LIMITED: tl.constexpr,
    DEEP: tl.constexpr,
    NORMALISED: tl.constexpr,
    DRAFTED: tl.constexpr,
    RANKED: tl.constexpr,
    COUNTED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One slot. `permitted` [vocabulary] is 0 on ids that never stand; a draft has a column less than the step. With
    DEEP, slots' positions lie depth [rows, step] behind the start instead of side by side."""
    begin(OVERLAP)
    wait(OVERLAP)
    place = tl.program_id(0)
    row = (place // step).to(tl.int64)
    slot = place % step
    here = logits + row * logits_row + slot * logits_step
    if LIMITED:
        behind = slot.to(tl.int64)
        if DEEP:
            behind = tl.load(depth + place)
        position = tl.load(start + row) + behind
        never = tl.where(position < min_length, EOS, -1)  # the id that may not stand here beside those that never may
        must_end = position >= tl.load(longest + row)
        goes_on = position < tl.load(longest + row)
    if DRAFTED:
        has_draft = slot < step - 1
        token = tl.load(draft + row * draft_row + slot, mask=has_draft, other=EOS)
        stands = tl.load(permitted + token) != 0
        if LIMITED:
            stands = stands & (token != never) & ((token == EOS) | goes_on)
        drafted = tl.where(stands, tl.load(here + token).to(tl.float32), float("-inf"))

    best = float("-inf")
    chosen = 0
    highest = float("-inf")
    total = 0.0
    above = 0
    for tile in tl.static_range(0, VOCABULARY, TILE):
        column = tile + tl.arange(0, TILE)
        inside = column < VOCABULARY
        raw = tl.load(here + column, mask=inside, other=float("-inf")).to(tl.float32)
        allowed = tl.load(permitted + column, mask=inside, other=0) != 0
        if LIMITED:
            allowed = allowed & (column != never)
        possible = tl.where(allowed, raw, float("-inf"))
        peak = tl.max(possible, axis=0)
        at = tl.min(tl.where(possible == peak, column, VOCABULARY), axis=0)  # the first of equals
        chosen = tl.where(peak > best, at, chosen)
        best = tl.maximum(best, peak)
        if NORMALISED:
            crest = tl.maximum(highest, tl.max(raw, axis=0))
            total = total * tl.exp(highest - crest) + tl.sum(tl.exp(raw - crest), axis=0)
            highest = crest
        if RANKED:
            above += tl.sum((possible > drafted).to(tl.int32), axis=0)

    if LIMITED:
        best = tl.where(must_end, tl.load(here + EOS).to(tl.float32), best)
        chosen = tl.where(must_end, EOS, chosen)
    tl.store(top + row * top_row + slot, chosen.to(tl.int64))
    if COUNTED:
        tl.store(count + row, step.to(tl.int64), mask=slot == 0)
    if NORMALISED:
        tl.store(top_logit + place, best)
        tl.store(normaliser + place, highest + tl.log(total))
    if DRAFTED:
        compact = row * (step - 1) + slot
        tl.store(draft_logit + compact, drafted, mask=has_draft)
        if RANKED:
            if LIMITED:
                above = tl.where(must_end, 0, above)
            tl.store(draft_rank + compact, above.to(tl.int64), mask=has_draft)


@triton.jit(do_not_specialize=("step", "beta", "distance", "min_block", "ids_row", "count_row", "width"))
def _settle(
    ids,
    count,
    parents,
    top,
    top_logit,
    normaliser,
    draft_logit,
    draft_rank,
    hidden,
    tokens,
    length,
    newest,
    done,
    log_probability,
    start,
    drafted_now,
    accepted_now,
    active,
    positions,
    chosen,
    written,
    shown,
    path,
    told,
    step,
    beta,
    gap,
    distance,
    min_block,
    ids_row,
    count_row,
    tokens_row,
    newest_row,
    hidden_row,
    hidden_step,
    width,
    COLUMNS: tl.constexpr,
    EOS: tl.constexpr,
    KIND: tl.constexpr,
    DRAFTED: tl.constexpr,
    TREE: tl.constexpr,
    READ: tl.constexpr,
    TELLS: tl.constexpr,
    TILE: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One row: how much of its draft stands, what is committed, and what a step says of it.

    `ids` [rows, step] are the newest token and the draft. KIND is the rule's, and READ whether the draft's logits are
    there, which every rule but the exact one wants, and a least block too. With TREE, for the exact rule, the draft is
    the tree that parents [rows, step - 1] say, and what stands of it is read along its path, which is written. With
    TELLS the state that chose the newest token goes to `told`.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    inside = column < step
    was_done = tl.load(done + row)
    live = was_done == 0
    at = tl.load(length + row)
    meant = 0
    accepted = 0
    place = column
    if DRAFTED:
        meant = tl.minimum(tl.load(count + row * count_row), step - 1)
        in_draft = column < step - 1
        draft = tl.load(ids + row * ids_row + 1 + column, mask=in_draft, other=0)
        tl.store(shown + row * (step - 1) + column, draft, mask=in_draft)
    if TREE:
        here, above = ids + row * ids_row, parents + row * (step - 1)
        place, accepted = standing_path(here, above, top + row * step, column, meant, COLUMNS, EOS)
        tl.store(path + row * step + column, place.to(tl.int64), mask=inside)
    best = tl.load(top + row * step + place, mask=inside, other=0)
    logit = tl.load(top_logit + row * step + place, mask=inside, other=0.0)
    less = tl.load(normaliser + row * step + place, mask=inside, other=0.0)

    found = best
    if DRAFTED and not TREE:
        possible = column < meant
        if READ:
            drafted = tl.load(draft_logit + row * (step - 1) + column, mask=in_draft, other=float("-inf"))
            possible = possible & (drafted > float("-inf"))
        stands = possible
        if KIND == 0:
            stands = stands & (draft == best)
        if KIND == 1:
            rank = tl.load(draft_rank + row * (step - 1) + column, mask=in_draft, other=0)
            stands = stands & (rank < beta) & (logit - drafted <= gap)
        if KIND == 2:
            apart = tl.abs(draft - best)
            # The end is a decision, not a point of the ordered space: it must be the verifier's own.
            no_end = (draft != EOS) & (best != EOS)
            stands = stands & ((apart == 0) | ((apart <= distance) & no_end))
        accepted = tl.min(tl.where(stands, COLUMNS, column), axis=0)  # the first that does not
        if READ:
            most = tl.min(tl.where(possible, COLUMNS, column), axis=0)
            accepted = tl.maximum(accepted, tl.minimum(most, min_block - 1))
            logit = tl.where(column < accepted, drafted, logit)
        found = tl.where(column < accepted, draft, best)

    ends = (found == EOS) & (column <= accepted)
    end = tl.min(tl.where(ends, column, COLUMNS), axis=0)
    committed = tl.minimum(end, accepted) + 1
    last = tl.sum(tl.where(column == committed - 1, found, 0), axis=0)
    kept = tl.where(live, committed, 0)
    writes = column < kept
    gained = tl.sum(tl.where(writes, (logit - less).to(tl.float64), 0.0), axis=0)
    ended = (was_done != 0) | (last == EOS)
    before = tl.where(live, at, 0)

    tl.store(tokens + row * tokens_row + at + column, found, mask=writes)
    tl.store(length + row, at + kept)
    tl.store(newest + row * newest_row, last)
    tl.store(done + row, ended.to(tl.uint8))
    tl.store(log_probability + row, tl.load(log_probability + row) + gained)
    tl.store(start + row, tl.where(ended, 0, at + kept))
    tl.store(drafted_now + row, tl.where(live, meant, 0).to(tl.int64))
    tl.store(accepted_now + row, tl.where(live, tl.minimum(accepted, committed), 0).to(tl.int64))
    tl.store(active + row, live.to(tl.uint8))
    tl.store(positions + row * step + column, before + column, mask=inside)
    tl.store(chosen + row * step + column, found, mask=inside)
    tl.store(written + row * step + column, writes.to(tl.uint8), mask=inside)
    if TELLS:
        unit = tl.arange(0, TILE)
        last_slot = tl.sum(tl.where(column == committed - 1, place, 0), axis=0)
        state = hidden + row * hidden_row + last_slot * hidden_step + unit
        tl.store(told + row * width + unit, tl.load(state, mask=unit < width), mask=unit < width)


def read(
    logits: Tensor,
    permitted: Tensor,
    limits: tuple[Tensor, Tensor, int, Tensor | None] | None,
    draft: Tensor | None,
    ranked: bool,
    normalised: bool,
    eos: int,
    into: Tensor | None = None,
    count: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """logits [rows, step, vocabulary], the vocabulary side by side; permitted [vocabulary] uint8; `limits`: where rows
    start [rows], how long they may be [rows], how long they must be, and how deep slots lie [rows, step], if they are
    no chain.
    -> top [rows, step], and, as far as they were asked for, its logit, the normaliser [rows, step], the logit and the
    rank of draft [rows, step - 1]. The first is put `into` a tensor, if one is given; `count` [rows] is told the step.
    """
    rows, step, vocabulary = logits.shape
    top = torch.empty((rows, step), dtype=torch.int64, device=logits.device) if into is None else into
    top_logit = normaliser = draft_logit = draft_rank = None
    if normalised:
        top_logit = torch.empty((rows, step), dtype=torch.float32, device=logits.device)
        normaliser = torch.empty_like(top_logit)
    if draft is not None:
        draft_logit = torch.empty((rows, step - 1), dtype=torch.float32, device=logits.device)
        draft_rank = torch.empty((rows, step - 1), dtype=torch.int64, device=logits.device) if ranked else None
    tile = min(LARGEST_TILE, max(32, triton.next_power_of_2(vocabulary)))
    start, longest, min_length, depth = (None, None, 0, None) if limits is None else limits
    with torch.cuda.device_of(logits):
        _read[(rows * step,)](
            *(logits, permitted, start, longest, None if depth is None else depth.contiguous(), draft),
            *(top, top_logit, normaliser, draft_logit, draft_rank, count),
            *(step, min_length, *logits.stride()[:2]),
            *(0 if draft is None else draft.stride(0), top.stride(0)),
            VOCABULARY=vocabulary,
            TILE=tile,
            EOS=eos,
            LIMITED=limits is not None,
            DEEP=depth is not None,
            NORMALISED=normalised,
            DRAFTED=draft is not None,
            RANKED=draft_rank is not None,
            COUNTED=count is not None,
            num_warps=max(1, min(16, tile // 1024)),
            **launching(logits),
        )
    return top, top_logit, normaliser, draft_logit, draft_rank


def settle(
    rule: tuple[str, int, float, int],
    min_block: int,
    ids: Tensor,
    count: Tensor,
    parents: Tensor | None,
    reading: tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None],
    hidden: Tensor | None,
    tokens: Tensor,
    outputs: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor],
    eos: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """ids [rows, step], newest and draft; count [rows]; parents [rows, step - 1] of a tree; `reading` as :func:`read`
    gives it; hidden [rows, step, width].

    Writes tokens [rows, columns] and `outputs`, all [rows]: length, newest, done, log_probability, start, and how many
    were drafted and accepted this time. `rule` is its kind, beta, gap and distance.
    -> active [rows], positions, ids, written [rows, step], the draft [rows, step - 1], a tree's path [rows, step],
    newest's hidden [rows, width]
    """
    rows, step = ids.shape
    kind, beta, gap, distance = rule
    length, newest, done, *others = outputs
    device = ids.device
    active = torch.empty(rows, dtype=torch.bool, device=device)
    positions, chosen = (torch.empty((rows, step), dtype=torch.int64, device=device) for _ in range(2))
    written = torch.empty((rows, step), dtype=torch.bool, device=device)
    shown = torch.empty((rows, step - 1), dtype=torch.int64, device=device)
    width = 1 if hidden is None else hidden.shape[2]
    told = None if hidden is None else hidden.new_empty((rows, width))
    assert parents is None or (kind == "exact" and reading[3] is None), "of a tree, the exact rule alone"
    path = None if parents is None else torch.empty_like(positions)
    with torch.cuda.device_of(ids):
        _settle[(rows,)](
            *(ids, count, None if parents is None else parents.contiguous(), *reading, hidden, tokens),
            *(length, newest, _bytes(done), *others),
            *(_bytes(active), positions, chosen, _bytes(written), shown, path, told),
            *(step, beta, gap, distance, min_block),
            *(ids.stride(0), count.stride(0), tokens.stride(0), newest.stride(0)),
            *((0, 0) if hidden is None else hidden.stride()[:2]),
            width,
            COLUMNS=max(LEAST_COLUMNS, triton.next_power_of_2(step)),
            EOS=eos,
            KIND=KINDS[kind],
            DRAFTED=step > 1,
            TREE=parents is not None,
            READ=reading[3] is not None,
            TELLS=hidden is not None,
            TILE=triton.next_power_of_2(width),
            num_warps=1,
            **launching(ids),
        )
    return active, positions, chosen, written, shown, path, told


def _bytes(flags: Tensor) -> Tensor:
    """Booleans as Triton reads and writes them."""
    return flags.view(torch.uint8)
