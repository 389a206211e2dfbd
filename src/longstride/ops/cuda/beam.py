"""Triton kernels for what lies between two model calls of beam search: one reads logits, a program for each row; one
extends, finishes and prunes by single words, a program for each sentence. Bundles of words have one of their own
(:mod:`longstride.ops.cuda.beam_bundles`), which goes on from what the first one reads.

They are twins of :mod:`longstride.search.beam` and :mod:`longstride.search.candidates`, which take some hundred and
thirty small kernels for the same. Among equal scores the first hypothesis, then the lower id comes first. What a row
gives depends on its logits alone: tiles follow from the vocabulary.

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
from longstride.ops.cuda.overlap import begin, launching, wait

LARGEST_TILE = 16384
"""Logits that a program holds at once: most vocabularies are one tile, read by one wave of loads."""
COLUMNS = 64
"""Of outputs, moved at a time."""


@triton.jit
def _ranked(here, first, permitted, never, VOCABULARY: tl.constexpr, TILE: tl.constexpr):
    """[TILE] int64, one for every id from `first` on, in the order of logits; equal ones in the order of ids, falling.

    A number's bits, read as an integer, are in its order once those of negative ones are turned over.
    """
    column = first + tl.arange(0, TILE)
    inside = column < VOCABULARY
    raw = tl.load(here + column, mask=inside, other=float("-inf")).to(tl.float32)
    allowed = (tl.load(permitted + column, mask=inside, other=0) != 0) & (column != never)
    bits = tl.where(allowed, raw, float("-inf")).to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    key = (ordered.to(tl.int64) << 32) | (0x7FFFFFFF - column).to(tl.int64)
    return tl.where(inside, key, -0x7FFFFFFFFFFFFFFF)


@triton.jit(do_not_specialize=("min_length",))
def _candidates(
    logits,
    permitted,
    start,
    ids,
    gained,
    end,
    min_length,
    logits_row,
    VOCABULARY: tl.constexpr,
    TILE: tl.constexpr,
    COUNT: tl.constexpr,
    PICKS: tl.constexpr,
    EOS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One hypothesis: its COUNT best ids with their log-probabilities, and that of the end."""
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    here = logits + row * logits_row
    never = tl.where(tl.load(start + row) < min_length, EOS, -1)
    highest = float("-inf")
    total = 0.0
    for tile in tl.static_range(0, VOCABULARY, TILE):
        column = tile + tl.arange(0, TILE)
        raw = tl.load(here + column, mask=column < VOCABULARY, other=float("-inf")).to(tl.float32)
        crest = tl.maximum(highest, tl.max(raw, axis=0))
        total = total * tl.exp(highest - crest) + tl.sum(tl.exp(raw - crest), axis=0)
        highest = crest
    normaliser = highest + tl.log(total)

    pick = tl.arange(0, PICKS)
    none = tl.full((), -0x7FFFFFFFFFFFFFFF, tl.int64)
    found = tl.full((PICKS,), -0x7FFFFFFFFFFFFFFF, tl.int64)
    before = tl.full((), 0x7FFFFFFFFFFFFFFF, tl.int64)
    key = _ranked(here, 0, permitted, never, VOCABULARY, TILE)
    for number in range(COUNT):
        # What comes right behind the last one that was found.
        top = tl.max(tl.where(key < before, key, none), axis=0)
        for tile in tl.static_range(TILE, VOCABULARY, TILE):
            further = _ranked(here, tile, permitted, never, VOCABULARY, TILE)
            top = tl.maximum(top, tl.max(tl.where(further < before, further, none), axis=0))
        found = tl.where(pick == number, top, found)
        before = top
    ordered = (found >> 32).to(tl.int32)
    bits = ordered ^ ((ordered >> 31) & 0x7FFFFFFF)
    there = found > none
    score = tl.where(there, bits.to(tl.float32, bitcast=True) - normaliser, float("-inf"))
    token = tl.where(there, 0x7FFFFFFF - (found & 0x7FFFFFFF), 0)
    tl.store(ids + row * COUNT + pick, token, mask=pick < COUNT)
    tl.store(gained + row * COUNT + pick, score.to(tl.float64), mask=pick < COUNT)
    tl.store(end + row, (tl.load(here + EOS).to(tl.float32) - normaliser).to(tl.float64))


@triton.jit(do_not_specialize=("columns", "lines_row"))
def _advance(
    ids,
    gained,
    end,
    divisors,
    tokens,
    live,
    length,
    finished_tokens,
    finished,
    finished_length,
    longest,
    done,
    last,
    start,
    lines,
    scores,
    active,
    columns,
    lines_row,
    WIDTH: tl.constexpr,
    COUNT: tl.constexpr,
    N_BEST: tl.constexpr,
    PLACES: tl.constexpr,
    PICKS: tl.constexpr,
    MANY: tl.constexpr,
    COLUMNS: tl.constexpr,
    EOS: tl.constexpr,
    PAD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One sentence of WIDTH hypotheses with COUNT candidates each. PLACES, PICKS and MANY are powers of two with room
    for WIDTH, COUNT and WIDTH * COUNT.

    Whatever it reads of a column of hypotheses is read before anything is written there: they change places.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    slot = tl.program_id(0).to(tl.int64)
    base = slot * WIDTH
    was_done = tl.load(done + slot) != 0
    at = tl.load(length + slot)
    most = tl.load(longest + slot)
    must_end = at >= most
    dead = float("-inf")

    # --- the best candidates of all hypotheses -----------------------------------------------------------------------
    candidate = tl.arange(0, MANY)
    there = candidate < WIDTH * COUNT
    owner = base + candidate // COUNT
    own = tl.load(gained + base * COUNT + candidate, mask=there, other=dead)
    forced = tl.load(end + owner, mask=there & (candidate % COUNT == 0), other=dead)
    rest = tl.load(live + owner, mask=there, other=dead) + tl.where(must_end, forced, own)
    rank = tl.arange(0, PICKS)
    best = tl.full((PICKS,), float("-inf"), tl.float64)
    picked = tl.zeros((PICKS,), tl.int32)
    for number in range(COUNT):
        top = tl.max(rest, axis=0)
        first = tl.min(tl.where(rest == top, candidate, MANY - 1), axis=0)
        best = tl.where(rank == number, top, best)
        picked = tl.where(rank == number, first, picked)
        rest = tl.where(candidate == first, dead, rest)
    picked = tl.minimum(picked, WIDTH * COUNT - 1)
    token = tl.load(ids + base * COUNT + picked)
    token = tl.where(must_end, EOS, token)
    parent = picked // COUNT

    # --- who ends, who goes on ---------------------------------------------------------------------------------------
    place = tl.arange(0, PLACES)
    real = place < WIDTH
    ended = tl.load(finished + base + place, mask=real, other=dead)
    ended_length = tl.load(finished_length + base + place, mask=real, other=0)
    taken = tl.sum((ended > dead).to(tl.int32), axis=0)
    possible = (best > dead) & (rank < COUNT) & (was_done == 0)
    # A hypothesis finishes only if it ranks among the places that are still open.
    ending = possible & (token == EOS) & (rank < WIDTH - taken)
    goes = possible & (token != EOS)
    earlier = rank[None, :] < rank[:, None]  # [of this, that]
    end_place = taken + tl.sum((earlier & ending[None, :]).to(tl.int32), axis=1)
    go_place = tl.sum((earlier & goes[None, :]).to(tl.int32), axis=1)
    goes = goes & (go_place < WIDTH - taken - tl.sum(ending.to(tl.int32), axis=0))

    to_end = ending[None, :] & (end_place[None, :] == place[:, None])  # [place, rank], at most one of a row
    new = tl.sum(to_end.to(tl.int32), axis=1) > 0
    end_parent = tl.sum(tl.where(to_end, parent[None, :], 0), axis=1)
    ended = tl.where(new, tl.sum(tl.where(to_end, best[None, :], 0.0), axis=1), ended)
    ended_length = tl.where(new, at, ended_length)
    to_go = goes[None, :] & (go_place[None, :] == place[:, None])
    alive = tl.sum(to_go.to(tl.int32), axis=1) > 0
    # A place that nobody goes on from keeps what it has, which nobody looks at again.
    from_place = tl.where(alive, tl.sum(tl.where(to_go, parent[None, :], 0), axis=1), tl.where(real, place, 0))
    newest = tl.where(alive, tl.sum(tl.where(to_go, token[None, :], 0), axis=1), PAD)
    going = tl.where(alive, tl.sum(tl.where(to_go, best[None, :], 0.0), axis=1), dead)
    now = tl.where(was_done, at, at + 1)

    # --- whether any of them could still win -------------------------------------------------------------------------
    final = ended / tl.load(divisors + ended_length + 1, mask=real, other=1.0)
    as_good = tl.sum((final[None, :] >= final[:, None]).to(tl.int32), axis=1)
    settled = tl.max(tl.where(as_good >= N_BEST, final, dead), axis=0)
    largest = tl.maximum(tl.load(divisors + now + 1), tl.load(divisors + most + 1))
    hope = tl.max(going, axis=0)
    now_done = was_done | (hope / largest <= settled) | (hope == dead)

    # --- the table ---------------------------------------------------------------------------------------------------
    tl.debug_barrier()  # all of it was read
    tl.store(live + base + place, going, mask=real)
    tl.store(finished + base + place, ended, mask=real)
    tl.store(finished_length + base + place, ended_length, mask=real)
    tl.store(scores + base + place, final, mask=real)
    tl.store(last + base + place, newest, mask=real)
    tl.store(start + base + place, tl.where(now_done, 0, now) + tl.zeros((PLACES,), tl.int64), mask=real)
    tl.store(length + slot, now)
    tl.store(done + slot, now_done.to(tl.uint8))
    tl.store(active + slot, (was_done == 0).to(tl.uint8))

    own_row = base + place
    from_row = base + from_place
    end_row = base + end_parent
    newest_at = tl.minimum(at, columns - 1)
    until = (at + 1).to(tl.int32)
    for tile in range(0, until, COLUMNS):
        column = tile + tl.arange(0, COLUMNS)
        past = real[:, None] & (column < at)[None, :]
        inside = real[:, None] & (column < columns)[None, :] & (column <= at)[None, :]
        moved = tl.load(tokens + from_row[:, None] * columns + column[None, :], mask=past & inside, other=PAD)
        ending_tokens = tl.load(tokens + end_row[:, None] * columns + column[None, :], mask=past & inside, other=PAD)
        line = tl.load(lines + from_row[:, None] * lines_row + column[None, :], mask=past & inside, other=0)
        tl.debug_barrier()
        moved = tl.where((column == newest_at)[None, :], newest[:, None], moved)
        tl.store(tokens + own_row[:, None] * columns + column[None, :], moved, mask=inside)
        over = inside & new[:, None]
        tl.store(finished_tokens + own_row[:, None] * columns + column[None, :], ending_tokens, mask=over)
        # What the step has just written lies where it was written.
        line = tl.where((column == at)[None, :], from_row[:, None].to(tl.int32), line)
        tl.store(lines + own_row[:, None] * lines_row + column[None, :], line, mask=inside)


def candidates(
    logits: Tensor, permitted: Tensor, start: Tensor, min_length: int, count: int, eos: int
) -> tuple[Tensor, Tensor, Tensor]:
    """logits [rows, vocabulary], the vocabulary side by side; permitted [vocabulary] uint8; start [rows].

    -> the `count` best ids of each row [rows, count], their log-probabilities and that of the end [rows], in float64
    """
    rows, vocabulary = logits.shape
    ids = torch.empty((rows, count), dtype=torch.int64, device=logits.device)
    gained = torch.empty((rows, count), dtype=torch.float64, device=logits.device)
    end = torch.empty((rows,), dtype=torch.float64, device=logits.device)
    tile = min(LARGEST_TILE, triton.next_power_of_2(vocabulary))
    with torch.cuda.device_of(logits):  # Triton launches on the current one
        _candidates[(rows,)](
            *(logits, permitted, start, ids, gained, end, min_length, logits.stride(0)),
            VOCABULARY=vocabulary,
            TILE=tile,
            COUNT=count,
            PICKS=triton.next_power_of_2(count),
            EOS=eos,
            num_warps=max(1, min(16, tile // 512)),
            **launching(logits),
        )
    return ids, gained, end


def advance_words(
    found: tuple[Tensor, Tensor, Tensor],
    divisors: Tensor,
    state: Sequence[Tensor],
    last: Tensor,
    start: Tensor,
    indirection: Tensor,
    scores: Tensor,
    n_best: int,
    eos: int,
) -> Tensor:
    """found: ids and log-probabilities [sentences, width, 2 * width], those of the end [sentences, width]; divisors of
    scores by length, EOS counted. Written are the tensors of a :class:`longstride.search.beam.BeamState`, in its order,
    last [sentences, width], start [sentences * width], a cache's indirection [sentences * width, slots] and the scores
    of finished hypotheses [sentences, width].

    -> who took part [sentences]
    """
    sentences, width, count = found[0].shape
    *numbers, done = state
    columns = numbers[0].shape[2]
    active = torch.empty_like(done)
    with torch.cuda.device_of(start):
        _advance[(sentences,)](
            *(*found, divisors, *numbers, done.view(torch.uint8), last, start, indirection, scores),
            *(active.view(torch.uint8), columns, indirection.stride(0)),
            WIDTH=width,
            COUNT=count,
            N_BEST=n_best,
            PLACES=max(2, triton.next_power_of_2(width)),
            PICKS=triton.next_power_of_2(count),
            MANY=triton.next_power_of_2(width * count),
            COLUMNS=COLUMNS,
            EOS=eos,
            PAD=PAD,
            num_warps=1 if width <= 8 else 4,
            **launching(start),
        )
    return active
