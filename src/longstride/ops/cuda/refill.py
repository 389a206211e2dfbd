"""Triton kernels that refill the rows of a table from a queue on the device: one says who takes what, one copies it.

Imports Triton, so only what has a CUDA device imports this. Knows no models and no sessions. Launched as ever, without
overlap: whatever follows them may read what they wrote before it waits.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

WORD = 8
"""Bytes that are copied as one."""
TILE = 1024
"""Words that a program copies at a time."""
PROGRAMS = 4
"""that share the copy of one row of one tensor"""


@triton.jit(do_not_specialize=("rows", "places", "newest_step", "first_id"))
def _assign(
    done,
    length,
    newest,
    start,
    log_probability,
    taken,
    added,
    ticket,
    takes,
    place,
    rows,
    places,
    newest_step,
    first_id,
    ROWS: tl.constexpr,
    STARTS: tl.constexpr,
):
    """The only program looks at all rows: those that are done take the next sentences in their order."""
    row = tl.arange(0, ROWS)
    inside = row < rows
    idle = tl.load(done + row, mask=inside, other=0).to(tl.int64)
    before = tl.load(taken)
    last = tl.load(added, volatile=True)  # what encodes sentences beside this may be about to change it
    number = before + tl.cumsum(idle, 0) - 1
    taking = (idle > 0) & (number < last)
    entry = number % places
    given_up = tl.load(ticket + entry, mask=taking, other=0, volatile=True) < 0
    tl.store(takes + row, taking.to(tl.uint8), mask=inside)
    tl.store(place + row, entry, mask=taking)
    nothing = tl.zeros([ROWS], dtype=tl.int64)
    tl.store(done + row, given_up.to(tl.uint8), mask=taking)
    tl.store(length + row, nothing, mask=taking)
    tl.store(newest + row * newest_step, nothing + first_id, mask=taking)
    tl.store(log_probability + row, tl.zeros([ROWS], dtype=tl.float64), mask=taking)
    if STARTS:
        tl.store(start + row, nothing, mask=taking)
    tl.store(taken, before + tl.sum(taking.to(tl.int64), 0))


@triton.jit
def _copy(pieces, takes, place, TILE: tl.constexpr):
    """A part of one row of one tensor. Of a piece: where the rows lie, where the queue lies, words of a row."""
    row = tl.program_id(0).to(tl.int64)
    piece = tl.program_id(1)
    if tl.load(takes + row) != 0:
        there = tl.load(pieces + 3 * piece).to(tl.pointer_type(tl.int64))
        here = tl.load(pieces + 3 * piece + 1).to(tl.pointer_type(tl.int64))
        words = tl.load(pieces + 3 * piece + 2)
        entry = tl.load(place + row)
        for first in range(tl.program_id(2) * TILE, words, tl.num_programs(2) * TILE):
            word = first + tl.arange(0, TILE)
            value = tl.load(here + entry * words + word, mask=word < words)
            tl.store(there + row * words + word, value, mask=word < words)


class Refill:
    """Refills rows from a queue; which tensors these are made of does not change."""

    def __init__(self, moved: Sequence[tuple[Tensor, Tensor, int]]) -> None:
        """Tensors of the rows and of the queue, and the dimension that rows and places have in both."""
        found = []
        for there, here, dim in moved:
            layers = zip(there, here, strict=True) if dim else [(there, here)]
            found += [(one.data_ptr(), other.data_ptr(), _row_bytes(one) // WORD) for one, other in layers]
        device = moved[0][0].device
        rows = moved[0][0].shape[moved[0][2]]
        self._held = tuple(moved)  # kernels know addresses
        self._pieces = torch.tensor(found, dtype=torch.int64, device=device)
        self._takes = torch.zeros(rows, dtype=torch.uint8, device=device)
        self._place = torch.zeros(rows, dtype=torch.int64, device=device)

    @staticmethod
    def supports(moved: Sequence[tuple[Tensor, Tensor, int]]) -> bool:
        """Rows that are whole words, side by side; of layers, at most one dimension of them."""
        return all(
            dim in (0, 1)
            and all(one.is_contiguous() and one.data_ptr() % WORD == 0 for one in (there, here))
            and _row_bytes(there[0] if dim else there) % WORD == 0
            for there, here, dim in moved
        )

    @property
    def buffers(self) -> list[Tensor]:
        """What it writes beside the rows."""
        return [self._takes, self._place]

    def __call__(self, rows, taken: Tensor, added: Tensor, ticket: Tensor, places: int, start: int) -> None:
        """As the tensor code does it; `rows` has tensors done, length, newest, start and log_probability [rows]."""
        count = len(self._takes)
        with torch.cuda.device_of(taken):
            _assign[(1,)](
                *(rows.done.view(torch.uint8), rows.length, rows.newest, rows.start, rows.log_probability),
                *(taken, added, ticket, self._takes, self._place),
                *(count, places, rows.newest.stride(0), start),
                ROWS=triton.next_power_of_2(count),
                STARTS=rows.start is not None,
                num_warps=1,
            )
            _copy[(count, len(self._pieces), PROGRAMS)](self._pieces, self._takes, self._place, TILE=TILE, num_warps=4)


def _row_bytes(tensor: Tensor) -> int:
    """Of [rows, ...]."""
    return tensor.nbytes // max(1, len(tensor))
