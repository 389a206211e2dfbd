"""Triton kernels for the search through a lattice of edges: one goes forward, one program a sentence; one comes back.

Column by column in tensor code is two kernels a column, and putting EOS, PAD and what is forbidden beside the scores
some twenty more. Here a program holds the scores of the best paths to every word of a column, and the next column's
edges are under way while it works on this one's. EOS and PAD are no states: the best path that has ended so far is two
numbers. The way back is a kernel of its own, because it reads what many threads of the other have written.

Sums are those of the slow twin (`window.assemble` and `viterbi.viterbi`), in its order, and of equal paths the same one
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
from longstride.nn.overlap import launching
from longstride.nn.overlap_kernels import begin, wait

_PER_WARP = 512
"""edges of a column: those of two columns, 16 a thread each, are under way"""


@triton.jit(do_not_specialize=("columns", "ends_row"))
def _forward(
    first,
    edges,
    words,
    shortest,
    longest,
    ends,
    back,
    ended,
    columns,
    k,
    first_row,
    edges_row,
    edges_column,
    edges_from,
    window_row,
    ends_row,
    WIDTH: tl.constexpr,
    ENDS: tl.constexpr,
    PAD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One sentence: where the best path to every word comes from, and where the best path ends.

    first [rows, k + 1], edges [rows, columns - 1, k, k + 1], the last being EOS's; words [rows, columns, k]; back
    [rows, columns, WIDTH]; ended [rows, 3] float64: the score, the column of EOS, and the word before it. With `ENDS`,
    ends [rows, columns] are added to what has EOS in a column.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, WIDTH)[:, None]
    j = tl.arange(0, WIDTH)[None, :]
    one = tl.arange(0, WIDTH)
    real = one < k
    inside = (i < k) & (j < k)
    least = tl.load(shortest + row * window_row)
    most = tl.load(longest + row * window_row)
    first += row * first_row
    edges += row * edges_row
    words += row * columns * k
    back += row * columns * WIDTH

    word = tl.load(words + one, mask=real, other=PAD)
    best = tl.load(first + one, mask=real, other=float("-inf"))
    best = tl.where((word != PAD) & (most > 1), best, float("-inf"))
    score = tl.load(first + k)
    if ENDS:
        score += tl.load(ends + row * ends_row).to(tl.float32)
    score = tl.where((least <= 1) & (most > 0), score, float("-inf"))
    at = tl.full((), 0, tl.int32)
    before = tl.full((), 0, tl.int32)

    there = columns > 1
    tile = tl.load(edges + i * edges_from + j, mask=inside & there, other=float("-inf"))
    last = tl.load(edges + one * edges_from + k, mask=real & there, other=float("-inf"))
    word = tl.load(words + k + one, mask=real & there, other=PAD)
    for column in range(1, columns):
        there = column + 1 < columns
        following = edges + column * edges_column
        next_tile = tl.load(following + i * edges_from + j, mask=inside & there, other=float("-inf"))
        next_last = tl.load(following + one * edges_from + k, mask=real & there, other=float("-inf"))
        next_word = tl.load(words + (column + 1) * k + one, mask=real & there, other=PAD)

        if ENDS:
            last += tl.load(ends + row * ends_row + column).to(tl.float32)
        ending, ending_from = tl.max(best + last, 0, return_indices=True, return_indices_tie_break_left=True)
        # Of equal paths the longer one is taken, as states go by their number: EOS is before PAD.
        taken = (column >= least - 1) & (column < most) & (ending >= score)
        score = tl.where(taken, ending, score)
        at = tl.where(taken, column, at)
        before = tl.where(taken, ending_from, before)

        total = tl.reshape(best, (WIDTH, 1)) + tile
        top, came = tl.max(total, 0, return_indices=True, return_indices_tie_break_left=True)
        tl.store(back + column * WIDTH + one, came.to(tl.int32))
        best = tl.where((word != PAD) & (column < most - 1), top, float("-inf"))
        tile, last, word = next_tile, next_last, next_word
    tl.store(ended + row * 3, score.to(tl.float64))
    tl.store(ended + row * 3 + 1, at.to(tl.float64))
    tl.store(ended + row * 3 + 2, before.to(tl.float64))


@triton.jit(do_not_specialize=("columns", "ends_row"))
def _backward(
    words,
    ends,
    back,
    ended,
    out,
    columns,
    k,
    ends_row,
    WIDTH: tl.constexpr,
    ENDS: tl.constexpr,
    EOS: tl.constexpr,
    PAD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One sentence from its end to its beginning: out [rows, 3 + columns] as `pipeline.packed` has it."""
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    words += row * columns * k
    back += row * columns * WIDTH
    out += row * (3 + columns)
    score = tl.load(ended + row * 3)
    end = tl.load(ended + row * 3 + 1).to(tl.int32)
    state = tl.minimum(tl.load(ended + row * 3 + 2).to(tl.int32), k - 1)
    alone = score
    if ENDS:
        alone = score - tl.load(ends + row * ends_row + end)
    tl.store(out, (end + 1).to(tl.int64))
    tl.store(out + 1, score.to(tl.int64, bitcast=True))
    tl.store(out + 2, alone.to(tl.int64, bitcast=True))
    for step in range(columns):
        column = columns - 1 - step
        token = tl.load(words + column * k + state)
        token = tl.where(column < end, token, tl.where(column == end, EOS, PAD))
        tl.store(out + 3 + column, token.to(tl.int64))
        # Into the column of EOS nobody came by a pointer: `state` is the word before it already.
        came = tl.load(back + column * WIDTH + state, mask=column > 0, other=0)
        state = tl.where(column < end, tl.minimum(came, k - 1), state)  # inside, whatever the scores were


def best_paths(
    first: Tensor, edges: Tensor, words: Tensor, shortest: Tensor, longest: Tensor, ends: Tensor | None
) -> Tensor:
    """first [rows, K + 1] and edges [rows, columns - 1, K, K + 1], float32 with their last dimension dense; words
    [rows, columns, K], contiguous; shortest and longest [rows], of one stride; ends [rows, columns] float64.
    -> [rows, 3 + columns] int64: length, score, log-probability (the bits of a float64 each), ids"""
    rows, columns, k = words.shape
    width = max(16, triton.next_power_of_2(k))
    back = torch.empty((rows, columns, width), dtype=torch.int32, device=words.device)
    ended = torch.empty((rows, 3), dtype=torch.float64, device=words.device)
    out = torch.empty((rows, 3 + columns), dtype=torch.int64, device=words.device)
    given = ends if ends is not None else ended
    _forward[(rows,)](
        *(first, edges, words, shortest, longest, given, back, ended, columns, k),
        *(first.stride(0), *edges.stride()[:3], shortest.stride(0), given.stride(0)),
        WIDTH=width,
        ENDS=ends is not None,
        PAD=PAD,
        num_warps=max(1, min(16, width * width // _PER_WARP)),
        **launching(words),
    )
    _backward[(rows,)](
        *(words, given, back, ended, out, columns, k, given.stride(0)),
        WIDTH=width,
        ENDS=ends is not None,
        EOS=EOS,
        PAD=PAD,
        num_warps=1,
        **launching(words),
    )
    return out
