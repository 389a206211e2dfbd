"""Triton kernels for the search through a lattice of edges: one goes forward, one program a sentence; one comes back.

Column by column in tensor code is two kernels a column, and putting EOS, PAD and what is forbidden beside the scores
some twenty more. Here a program holds the scores of the best paths to every word of a column, and the next column's
edges are under way while it works on this one's. What one column does not have to wait for another for is left to the
second kernel: where paths may end, all columns side by side, and where the best path came from, for the words on it
alone. EOS and PAD are no states: the best path that has ended is three numbers.

A column's maxima are over the words before. Where those lie side by side in memory, the threads of one warp have them,
and no warp has to wait for another's part of a maximum.

Sums are those of the slow twin (`window.assemble` and `search.viterbi`), in its order, and of equal paths the same one
is taken. Imports Triton, so only what has a CUDA device imports this. Knows no models.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from longstride.contract import EOS, PAD
from longstride.ops.cuda.overlap import begin, launching, wait

_PER_WARP = 512
"""edges of a column: those of two columns, 16 a thread each, are under way"""
_ENDS = 16
"""columns in which the second kernel tries to end at a time"""
_FILLED = 64
"""columns behind the end that it fills at a time"""


@triton.jit(do_not_specialize=("columns",))
def _forward(
    first,
    edges,
    words,
    longest,
    best_scores,
    columns,
    k,
    first_row,
    edges_row,
    edges_column,
    edges_from,
    edges_to,
    window_row,
    WIDTH: tl.constexpr,
    PAD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One sentence: the score of the best path to every word, best_scores [rows, columns, WIDTH].

    first [rows, k + 1], edges [rows, columns - 1, k, k + 1], the last being EOS's; words [rows, columns, k].
    """
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    to = tl.arange(0, WIDTH)[:, None]
    origin = tl.arange(0, WIDTH)[None, :]
    one = tl.arange(0, WIDTH)
    real = one < k
    most = tl.load(longest + row * window_row)
    edges += row * edges_row
    words += row * columns * k
    best_scores += row * columns * WIDTH

    word = tl.load(words + one, mask=real, other=PAD)
    best = tl.load(first + row * first_row + one, mask=real, other=float("-inf"))
    best = tl.where((word != PAD) & (most > 1), best, float("-inf"))
    tl.store(best_scores + one, best)
    there = tl.where(columns > 1, k, 0)  # words of the next column
    inside = (origin < there) & (to < there)
    tile = tl.load(edges + origin * edges_from + to * edges_to, mask=inside, other=float("-inf"))
    word = tl.load(words + k + one, mask=one < there, other=PAD)
    for column in range(1, columns):
        there = tl.where(column + 1 < columns, k, 0)
        inside = (origin < there) & (to < there)
        following = edges + column * edges_column
        next_tile = tl.load(following + origin * edges_from + to * edges_to, mask=inside, other=float("-inf"))
        next_word = tl.load(words + (column + 1) * k + one, mask=one < there, other=PAD)
        total = best[None, :] + tile
        best = tl.where((word != PAD) & (column < most - 1), tl.max(total, 1), float("-inf"))
        tl.store(best_scores + column * WIDTH + one, best)
        tile, word = next_tile, next_word


@triton.jit(do_not_specialize=("columns", "ends_row"))
def _backward(
    first,
    edges,
    words,
    shortest,
    longest,
    ends,
    best_scores,
    out,
    columns,
    k,
    first_row,
    edges_row,
    edges_column,
    edges_from,
    edges_to,
    window_row,
    ends_row,
    WIDTH: tl.constexpr,
    AT_ONCE: tl.constexpr,
    FILLED: tl.constexpr,
    ENDS: tl.constexpr,
    EOS: tl.constexpr,
    PAD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One sentence: where its best path ends, then from there to its beginning; out [rows, 3 + columns] as
    `pipeline.packed` has it. With `ENDS`, ends [rows, columns] are added to what has EOS in a column."""
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    first += row * first_row
    edges += row * edges_row
    words += row * columns * k
    best_scores += row * columns * WIDTH
    ends += row * ends_row
    out += row * (3 + columns)
    least = tl.load(shortest + row * window_row)
    most = tl.load(longest + row * window_row)

    score = tl.load(first + k)
    if ENDS:
        score += tl.load(ends).to(tl.float32)
    score = tl.where((least <= 1) & (most > 0), score, float("-inf"))
    end = tl.full((), 0, tl.int32)
    state = tl.full((), 0, tl.int32)
    one = tl.arange(0, WIDTH)[None, :]
    for begun in range(1, columns, AT_ONCE):
        column = begun + tl.arange(0, AT_ONCE)
        there = column < columns
        real = there[:, None] & (one < k)
        before = (column - 1)[:, None]
        on_end = edges + k * edges_to
        last = tl.load(on_end + before * edges_column + one * edges_from, mask=real, other=float("-inf"))
        if ENDS:
            last += tl.load(ends + column, mask=there, other=0.0).to(tl.float32)[:, None]
        best = tl.load(best_scores + before * WIDTH + one, mask=real, other=float("-inf"))
        ending, origin = tl.max(best + last, 1, return_indices=True, return_indices_tie_break_left=True)
        allowed = there & (column >= least - 1) & (column < most)
        ending = tl.where(allowed, ending, float("-inf"))
        # Of equal paths the longer one is taken, as states go by their number: EOS is before PAD.
        crest = tl.max(ending, 0)
        at = tl.max(tl.where(allowed & (ending == crest), column, 0), 0)
        taken = (crest >= score) & (at > 0)
        score = tl.where(taken, crest, score)
        end = tl.where(taken, at, end)
        state = tl.where(taken, tl.sum(tl.where(column == at, origin, 0), 0), state)
    state = tl.minimum(state, k - 1)  # inside, whatever the scores were

    score = score.to(tl.float64)
    alone = score
    if ENDS:
        alone = score - tl.load(ends + end)
    tl.store(out, (end + 1).to(tl.int64))
    tl.store(out + 1, score.to(tl.int64, bitcast=True))
    tl.store(out + 2, alone.to(tl.int64, bitcast=True))
    out += 3
    for begun in range(0, columns, FILLED):
        column = begun + tl.arange(0, FILLED)
        behind = tl.where(column == end, EOS, PAD).to(tl.int64)
        tl.store(out + column, behind, mask=(column >= end) & (column < columns))
    origin = tl.arange(0, WIDTH)
    for step in range(end):
        column = end - 1 - step
        before = column - 1
        tl.store(out + column, tl.load(words + column * k + state).to(tl.int64))
        real = origin < tl.where(column > 0, k, 0)
        edge = edges + before * edges_column + state * edges_to + origin * edges_from
        total = tl.load(best_scores + before * WIDTH + origin, mask=real, other=float("-inf"))
        total += tl.load(edge, mask=real, other=float("-inf"))
        _, came = tl.max(total, 0, return_indices=True, return_indices_tie_break_left=True)
        state = tl.minimum(came, k - 1)


def best_paths(
    first: Tensor, edges: Tensor, words: Tensor, shortest: Tensor, longest: Tensor, ends: Tensor | None
) -> Tensor:
    """first [rows, K + 1], its last dimension dense, and edges [rows, columns - 1, K, K + 1], float32, best where its
    last dimension but one is dense; words [rows, columns, K], contiguous; shortest and longest [rows], of one stride;
    ends [rows, columns] float64, its last dimension dense.
    -> [rows, 3 + columns] int64: length, score, log-probability (the bits of a float64 each), ids"""
    rows, columns, k = words.shape
    width = max(16, triton.next_power_of_2(k))
    best_scores = torch.empty((rows, columns, width), dtype=torch.float32, device=words.device)
    out = torch.empty((rows, 3 + columns), dtype=torch.int64, device=words.device)
    lie = (first.stride(0), *edges.stride(), shortest.stride(0))
    _forward[(rows,)](
        *(first, edges, words, longest, best_scores, columns, k, *lie),
        WIDTH=width,
        PAD=PAD,
        num_warps=max(1, min(16, width * width // _PER_WARP)),
        **launching(words),
    )
    given = ends if ends is not None else best_scores
    _backward[(rows,)](
        *(first, edges, words, shortest, longest, given, best_scores, out, columns, k, *lie, given.stride(0)),
        WIDTH=width,
        AT_ONCE=_ENDS,
        FILLED=_FILLED,
        ENDS=ends is not None,
        EOS=EOS,
        PAD=PAD,
        num_warps=1,
        **launching(words),
    )
    return out
