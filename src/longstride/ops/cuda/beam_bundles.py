"""A Triton kernel that extends, finishes and prunes a beam by bundles of words, as interleaved decoding writes them: a
program for each sentence.

It is the twin of :mod:`longstride.search.beam` where a step has several slots that are independent of each other. Among
equal scores the first hypothesis, then its first continuation comes first, and endings come before others.

Imports Triton, so only what has a CUDA device imports this. Knows no state beyond its tensors.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from longstride.contract import PAD
from longstride.ops.cuda.beam import COLUMNS
from longstride.ops.cuda.overlap import begin, launching, wait


@triton.jit(do_not_specialize=("earliest", "columns", "lines_row"))
def _fold_words(
    ids,
    gained,
    end,
    divisors,
    words,
    live,
    length,
    finished_words,
    finished,
    finished_length,
    counted,
    longest,
    done,
    last,
    start,
    lines,
    scores,
    rows,
    active,
    earliest,
    columns,
    lines_row,
    WIDTH: tl.constexpr,
    STEP: tl.constexpr,
    N_BEST: tl.constexpr,
    PLACES: tl.constexpr,
    COLUMNS: tl.constexpr,
    LINED: tl.constexpr,
    PAD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One sentence of WIDTH hypotheses, each with the WIDTH best words of STEP slots. PLACES is a power of two with
    room for WIDTH, at most 16.

    A partial continuation is a number: four bits a slot say which of the slot's words it has. Whatever is read of a
    column of hypotheses is read before anything is written there: they change places. With LINED, lines [.., slots]
    are told where their pasts lie.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    sentence = tl.program_id(0).to(tl.int64)
    base = sentence * WIDTH
    was_done = tl.load(done + sentence) != 0
    at = tl.load(length + sentence)
    most = tl.load(longest + sentence)
    dead = float("-inf")
    many: tl.constexpr = PLACES * PLACES
    place = tl.arange(0, PLACES)
    each = tl.arange(0, many)
    real = place < WIDTH
    ended = tl.load(finished + base + place, mask=real, other=dead)
    ended_length = tl.load(finished_length + base + place, mask=real, other=0)
    ended_counted = tl.load(counted + base + place, mask=real, other=1)
    taken = tl.sum((ended > dead).to(tl.int32), axis=0)
    new = place < 0
    end_parent = tl.zeros((PLACES,), tl.int32)
    end_code = tl.zeros((PLACES,), tl.int64)
    end_count = tl.zeros((PLACES,), tl.int32)

    # --- the best continuations of every hypothesis, slot by slot: [hypothesis, continuation] ------------------------
    begun = tl.where(was_done, dead, tl.load(live + base + place, mask=real, other=dead))
    partial = tl.where((place == 0)[None, :], begun[:, None], dead)
    code = tl.zeros((PLACES, PLACES), tl.int64)
    for slot in tl.static_range(STEP):
        here = (base + place) * STEP + slot
        of_end = tl.load(end + here, mask=real, other=dead)
        of_end = tl.where(at + slot < tl.minimum(earliest, most), dead, of_end)
        both = real[:, None] & real[None, :]
        of_words = tl.load(gained + here[:, None] * WIDTH + place[None, :], mask=both, other=dead)
        of_words = tl.where(at + slot < most, of_words, dead)

        rest = tl.reshape(partial[:, :, None] + of_words[:, None, :], (PLACES, many))
        grown = tl.full((PLACES, PLACES), float("-inf"), tl.float64)
        picks = tl.zeros((PLACES, PLACES), tl.int32)
        for number in range(WIDTH):
            top = tl.max(rest, axis=1)
            first = tl.min(tl.where(rest == top[:, None], each[None, :], many - 1), axis=1)
            grown = tl.where((place == number)[None, :], top[:, None], grown)
            picks = tl.where((place == number)[None, :], first[:, None], picks)
            rest = tl.where(each[None, :] == first[:, None], dead, rest)

        # What ends here is finished if it ranks among the places that are still open.
        ending = tl.reshape(partial + of_end[:, None], (many,))
        going = tl.reshape(grown, (many,))
        codes = tl.reshape(code, (many,))
        above = (ending[None, :] > ending[:, None]) | (
            (ending[None, :] == ending[:, None]) & (each[None, :] < each[:, None])
        )
        rank = tl.sum(above.to(tl.int32), axis=1) + tl.sum((going[None, :] > ending[:, None]).to(tl.int32), axis=1)
        accepted = (rank < WIDTH - taken) & (ending > dead)
        earlier = accepted[None, :] & (rank[None, :] < rank[:, None])
        to = taken + tl.sum(earlier.to(tl.int32), axis=1)
        put = accepted[None, :] & (to[None, :] == place[:, None])  # [place, ending], at most one of a row
        fresh = tl.sum(put.to(tl.int32), axis=1) > 0
        new = new | fresh
        ended = tl.where(fresh, tl.sum(tl.where(put, ending[None, :], 0.0), axis=1), ended)
        ended_length = tl.where(fresh, at + slot, ended_length)
        ended_counted = tl.where(fresh, at + slot + 1, ended_counted)
        end_parent = tl.where(fresh, tl.sum(tl.where(put, (each // PLACES)[None, :], 0), axis=1), end_parent)
        end_code = tl.where(fresh, tl.sum(tl.where(put, codes[None, :], 0), axis=1), end_code)
        end_count = tl.where(fresh, slot, end_count)
        taken += tl.sum(accepted.to(tl.int32), axis=0)

        from_partial = (picks // PLACES)[:, :, None] == place[None, None, :]
        code = tl.sum(tl.where(from_partial, code[:, None, :], 0), axis=2)
        code += (picks % PLACES).to(tl.int64) << (4 * slot)
        partial = grown

    # --- the best of all hypotheses ----------------------------------------------------------------------------------
    rest = tl.reshape(partial, (many,))
    codes = tl.reshape(code, (many,))
    best = tl.full((PLACES,), float("-inf"), tl.float64)
    parent = tl.zeros((PLACES,), tl.int32)
    chosen = tl.zeros((PLACES,), tl.int64)
    for number in range(WIDTH):
        top = tl.max(rest, axis=0)
        first = tl.min(tl.where(rest == top, each, many - 1), axis=0)
        best = tl.where(place == number, top, best)
        parent = tl.where(place == number, first // PLACES, parent)
        chosen = tl.where(place == number, tl.sum(tl.where(each == first, codes, 0), axis=0), chosen)
        rest = tl.where(each == first, dead, rest)
    alive = (place < WIDTH - taken) & (best > dead)
    best = tl.where(alive, best, dead)
    parent = tl.minimum(parent, WIDTH - 1)
    now = tl.where(was_done, at, at + STEP)

    # --- whether any of them could still win -------------------------------------------------------------------------
    final = ended / tl.load(divisors + ended_counted, mask=real, other=1.0)
    as_good = tl.sum((final[None, :] >= final[:, None]).to(tl.int32), axis=1)
    settled = tl.max(tl.where(as_good >= N_BEST, final, dead), axis=0)
    largest = tl.maximum(tl.load(divisors + now + 1), tl.load(divisors + most + 1))
    hope = tl.max(best, axis=0)
    now_done = was_done | (hope / largest <= settled) | (hope == dead)

    # --- the table ---------------------------------------------------------------------------------------------------
    tl.debug_barrier()  # all of it was read
    tl.store(live + base + place, best, mask=real)
    tl.store(finished + base + place, ended, mask=real)
    tl.store(finished_length + base + place, ended_length, mask=real)
    tl.store(counted + base + place, ended_counted, mask=real)
    tl.store(scores + base + place, final, mask=real)
    tl.store(start + base + place, tl.where(now_done, 0, now) + tl.zeros((PLACES,), tl.int64), mask=real)
    tl.store(rows + base + place, base + parent, mask=real)
    tl.store(length + sentence, now)
    tl.store(done + sentence, now_done.to(tl.uint8))
    tl.store(active + sentence, (was_done == 0).to(tl.uint8))
    for slot in tl.static_range(STEP):
        word = ((base + parent) * STEP + slot) * WIDTH + ((chosen >> (4 * slot)) & 15)
        token = tl.where(alive, tl.load(ids + word, mask=real, other=PAD), PAD)
        tl.store(last + (base + place) * STEP + slot, token, mask=real)

    own_row = (base + place)[:, None] * columns
    from_row = (base + parent)[:, None] * columns
    end_row = (base + end_parent)[:, None] * columns
    until = tl.minimum(at + STEP, columns).to(tl.int32)
    for tile in range(0, until, COLUMNS):
        column = (tile + tl.arange(0, COLUMNS))[None, :]
        inside = real[:, None] & (column < until)
        past, present = inside & (column < at), inside & (column >= at)
        moved = tl.load(words + from_row + column, mask=past, other=0)
        closed = tl.load(words + end_row + column, mask=past, other=0)
        within = tl.maximum(column - at, 0)  # the step
        moved_at = ((base + parent)[:, None] * STEP + within) * WIDTH + ((chosen[:, None] >> (4 * within)) & 15)
        moved += tl.load(ids + moved_at, mask=present & alive[:, None], other=0)
        said = present & (within < end_count[:, None])
        closed_at = ((base + end_parent)[:, None] * STEP + within) * WIDTH + ((end_code[:, None] >> (4 * within)) & 15)
        closed += tl.load(ids + closed_at, mask=said, other=0)
        if LINED:
            # What the step has just written lies where it was written.
            line = tl.load(lines + (base + parent)[:, None] * lines_row + column, mask=past, other=0)
            line = tl.where(past, line, (base + parent)[:, None].to(tl.int32))
        tl.debug_barrier()
        if LINED:
            tl.store(lines + (base + place)[:, None] * lines_row + column, line, mask=inside)
        tl.store(words + own_row + column, moved, mask=inside)
        tl.store(finished_words + own_row + column, closed, mask=inside & new[:, None])


def advance_bundles(
    found: tuple[Tensor, Tensor, Tensor],
    divisors: Tensor,
    state: Sequence[Tensor],
    counted: Tensor,
    last: Tensor,
    start: Tensor,
    indirection: Tensor | None,
    scores: Tensor,
    earliest: int,
    n_best: int,
) -> tuple[Tensor, Tensor]:
    """found: ids and log-probabilities of the best words [sentences, width, step, width], those of the end [sentences,
    width, step]; divisors of scores by length, EOS counted. Written are the tensors of a
    :class:`longstride.search.beam.BeamState`, in its order, counted [sentences, width], last [sentences, width, step],
    start [sentences * width], a cache's indirection [sentences * width, slots], if it has one, and the scores of
    finished hypotheses [sentences, width].

    -> the row that each goes on from [sentences * width], and who took part [sentences]
    """
    sentences, width, step, _ = found[0].shape
    *numbers, longest, done = state
    rows = torch.empty_like(start)
    active = torch.empty_like(done)
    places = max(2, triton.next_power_of_2(width))
    with torch.cuda.device_of(start):
        _fold_words[(sentences,)](
            *(*(tensor.contiguous() for tensor in found), divisors, *numbers, counted, longest, done.view(torch.uint8)),
            *(last, start, rows if indirection is None else indirection, scores, rows, active.view(torch.uint8)),
            *(earliest, numbers[0].shape[2], 0 if indirection is None else indirection.stride(0)),
            WIDTH=width,
            STEP=step,
            N_BEST=n_best,
            PLACES=places,
            COLUMNS=COLUMNS,
            LINED=indirection is not None,
            PAD=PAD,
            num_warps=1 if places <= 4 else 4,
            **launching(start),
        )
    return rows, active
