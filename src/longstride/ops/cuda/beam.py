"""Triton kernels for what lies between two model calls of beam search: one reads logits, a program for each row; one
extends, finishes and prunes by single words, a program for each sentence; one does so by bundles of words.

They are twins of :mod:`longstride.search.beam` and :mod:`longstride.search.candidates`, which take some hundred and
thirty small kernels for the same. Among equal scores the first hypothesis, then the lower id comes first; in bundles,
endings come before others. What a row gives depends on its logits alone: tiles follow from the vocabulary.

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
    begun = tl.load(live + base + place, mask=real & (was_done == 0), other=dead)
    partial = tl.where((place == 0)[None, :], begun[:, None], dead)
    code = tl.zeros((PLACES, PLACES), tl.int64)
    for slot in tl.static_range(STEP):
        must_end = at + slot >= most
        here = (base + place) * STEP + slot
        no_end = (at + slot < earliest) & (must_end == 0)
        of_end = tl.load(end + here, mask=real & (no_end == 0), other=dead)
        both = real[:, None] & real[None, :] & (must_end == 0)
        of_words = tl.load(gained + here[:, None] * WIDTH + place[None, :], mask=both, other=dead)

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
