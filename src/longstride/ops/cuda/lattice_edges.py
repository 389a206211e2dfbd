"""Triton kernels for what lies between the head's products when all edges of a lattice are scored: what its first layer
reads, attention to two, and shares of the vocabulary; one program a slot.

A row has `columns` slots of START, then K slots for every column but the first, which hold the words of the column
before it (`scoring`, whose tensor code is the slow twin). A slot's numbers depend on that slot alone. Imports Triton,
so only what has a CUDA device imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from longstride.contract import EOS, START
from longstride.ops.cuda.overlap import begin, launching, wait

_LARGEST_TILE = 16384
"""Logits that a program holds at once: most vocabularies are one tile, read by one wave of loads."""
_LOG2_E = math.log2(math.e)
_DENSE = 16
"""Edges to a word begin at a multiple of so many, so that whoever reads them next reads in vectors."""


@triton.jit(do_not_specialize=("columns", "offset"))
def _begin(
    words,
    tokens,
    places,
    x,
    columns,
    k,
    offset,
    scale,
    width,
    WIDTH: tl.constexpr,
    START: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """x = places[offset + column] + scale * tokens[word], with the column that a slot predicts.

    words [rows, columns, k].
    """
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(1).to(tl.int64)
    slot = tl.program_id(0)
    of_word = slot >= columns
    word = tl.load(words + row * columns * k + slot - columns, mask=of_word, other=START)
    column = tl.where(of_word, (slot - columns) // k + 1, slot)
    unit = tl.arange(0, WIDTH)
    inside = unit < width
    of_token = tl.load(tokens + word * width + unit, mask=inside, other=0.0)
    of_place = tl.load(places + (column + offset) * width + unit, mask=inside, other=0.0)
    # Rounded once, as PyTorch's own sum with a factor is.
    both = tl.fma(of_token.to(tl.float32), scale, of_place.to(tl.float32))
    here = row * tl.num_programs(0) + slot
    tl.store(x + here * width + unit, both.to(of_token.dtype), mask=inside)


@triton.jit(do_not_specialize=("columns",))
def _two(
    packed,
    out,
    columns,
    k,
    heads,
    head,
    scale,
    HEADS: tl.constexpr,
    HEAD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """packed [rows, slots, 3, heads, head] -> out [rows, slots, heads, head]: START sees itself, a word itself and the
    START in the slot before."""
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(1).to(tl.int64)
    slot = tl.program_id(0)
    slots = tl.num_programs(0)
    of_word = slot >= columns
    other = tl.where(of_word, (slot - columns) // k, slot)  # a START's is itself, which changes nothing
    h = tl.arange(0, HEADS)[:, None]
    d = tl.arange(0, HEAD)[None, :]
    inside = (h < heads) & (d < head)
    width = heads * head
    unit = h * head + d
    own = packed + (row * slots + slot) * 3 * width + unit
    start = packed + (row * slots + other) * 3 * width + unit
    q = tl.load(own, mask=inside, other=0.0).to(tl.float32)
    k_own = tl.load(own + width, mask=inside, other=0.0).to(tl.float32)
    k_start = tl.load(start + width, mask=inside, other=0.0).to(tl.float32)
    v_own = tl.load(own + 2 * width, mask=inside, other=0.0)
    v_start = tl.load(start + 2 * width, mask=inside, other=0.0).to(tl.float32)
    # A softmax over two scores is a sigmoid of their difference.
    apart = tl.sum(q * (k_own - k_start), 1)[:, None] * scale
    weight = 1.0 / (1.0 + tl.exp2(-apart))
    mixed = v_start + weight * (v_own.to(tl.float32) - v_start)
    tl.store(out + (row * slots + slot) * width + unit, mixed.to(v_own.dtype), mask=inside)


@triton.jit(do_not_specialize=("begun", "columns", "slots"))
def _shares(
    logits,
    words,
    first,
    edges,
    begun,
    columns,
    slots,
    k,
    logits_slot,
    first_row,
    edges_row,
    edges_column,
    edges_to,
    VOCABULARY: tl.constexpr,
    TILE: tl.constexpr,
    AFTER: tl.constexpr,
    EOS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Log-probabilities of the words of the column that a slot predicts, and of EOS: those of column 0, then of edges.

    logits [some, VOCABULARY] of the slots from `begun` on, the rows' `slots` one after the other; first [rows, k + 1],
    edges [rows, columns - 1, k + 1, k], on their side: the search takes maxima over the words before. Of START slots
    the first alone is asked for.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    here = logits + tl.program_id(0).to(tl.int64) * logits_slot
    of_all = begun + tl.program_id(0)
    row = (of_all // slots).to(tl.int64)
    slot = of_all % slots
    of_word = slot >= columns
    column = tl.where(of_word, (slot - columns) // k + 1, 0)
    highest = float("-inf")
    total = 0.0
    for tile in tl.static_range(0, VOCABULARY, TILE):
        token = tile + tl.arange(0, TILE)
        some = tl.load(here + token, mask=token < VOCABULARY, other=float("-inf")).to(tl.float32)
        crest = tl.maximum(highest, tl.max(some, axis=0))
        total = total * tl.exp(highest - crest) + tl.sum(tl.exp(some - crest), axis=0)
        highest = crest
    after = tl.arange(0, AFTER)
    word = tl.load(words + (row * columns + column) * k + after, mask=after < k, other=EOS)
    asked = tl.load(here + word, mask=after <= k, other=0.0).to(tl.float32)
    found = (asked - highest) - tl.log(total)
    origin = (slot - columns) % k
    to = edges + row * edges_row + (column - 1) * edges_column + after * edges_to + origin
    tl.store(to, found, mask=after < tl.where(of_word, k + 1, 0))
    tl.store(first + row * first_row + after, found, mask=after < tl.where(slot == 0, k + 1, 0))


def begun(words: Tensor, tokens: Tensor, scale: float, places: Tensor, offset: int) -> Tensor:
    """words [rows, columns, K], tokens [vocabulary, width] and places [positions, width], contiguous, where position 0
    is in row `offset` -> [rows, columns + (columns - 1) * K, width]"""
    (rows, columns, k), width = words.shape, tokens.shape[1]
    x = tokens.new_empty((rows, columns + (columns - 1) * k, width))
    tile = triton.next_power_of_2(width)
    _begin[(x.shape[1], rows)](
        *(words, tokens, places, x, columns, k, offset, scale, width),
        WIDTH=tile,
        START=START,
        num_warps=max(1, min(4, tile // 256)),
        **launching(x),
    )
    return x


def attended_to_two(packed: Tensor, columns: int, k: int, heads: int) -> Tensor:
    """packed [rows, slots, 3 * width], contiguous -> [rows, slots, width]"""
    rows, slots, width = packed.shape[0], packed.shape[1], packed.shape[2] // 3
    head = width // heads
    out = packed.new_empty((rows, slots, width))
    heads_tile, head_tile = triton.next_power_of_2(heads), triton.next_power_of_2(head)
    _two[(slots, rows)](
        *(packed, out, columns, k, heads, head, head**-0.5 * _LOG2_E),
        HEADS=heads_tile,
        HEAD=head_tile,
        num_warps=max(1, min(4, heads_tile * head_tile // 256)),
        **launching(packed),
    )
    return out


def room_for_shares(words: Tensor) -> tuple[Tensor, Tensor]:
    """What :func:`shares` writes for words [rows, columns, K], float32: of column 0 [rows, K + 1], and of edges
    [rows, columns - 1, K, K + 1], those to one word side by side in memory"""
    rows, columns, k = words.shape
    room = -(-k // _DENSE) * _DENSE
    first = torch.empty((rows, k + 1), dtype=torch.float32, device=words.device)
    edges = torch.empty((rows, columns - 1, k + 1, room), dtype=torch.float32, device=words.device)
    return first, edges[..., :k].transpose(2, 3)


def shares(logits: Tensor, begun: int, words: Tensor, first: Tensor, edges: Tensor) -> None:
    """logits [some, vocabulary], its last dimension dense, of the slots from `begun` on, counted through all rows;
    words [rows, columns, K], contiguous. Writes `first` and `edges`, which `room_for_shares` made."""
    (_, columns, k), vocabulary = words.shape, logits.shape[1]
    tile = min(_LARGEST_TILE, triton.next_power_of_2(vocabulary))
    edges_row, edges_column, _, edges_to = edges.stride()
    _shares[(len(logits),)](
        *(logits, words, first, edges, begun, columns, columns + (columns - 1) * k, k),
        *(logits.stride(0), first.stride(0), edges_row, edges_column, edges_to),
        VOCABULARY=vocabulary,
        TILE=tile,
        AFTER=triton.next_power_of_2(k + 1),
        EOS=EOS,
        num_warps=max(1, min(8, tile // 512)),
        **launching(logits),
    )
