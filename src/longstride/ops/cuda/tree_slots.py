"""Triton kernels of a step whose slots are a tree: who is above whom, along which paths attention walks, which one
stands, and moving that together.

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
from longstride.ops.draft_tree import QUERIES, Shape

_LEAST = 16
"""of what a tile is padded to"""


@triton.jit
def write_shape(is_above, level, followed, above, depth, paths, row, step, QUERIES: tl.constexpr, STEP: tl.constexpr):
    """One row's shape, as `ops.tree_shape` gives it, of is_above [STEP, STEP], level [STEP], and whether anybody comes
    after a slot, followed [STEP]"""
    slot = tl.arange(0, STEP)
    other = tl.arange(0, STEP)
    inside = slot < step
    within = inside[:, None] & (other < step)[None, :]
    square = row * step * step + slot[:, None] * step + other[None, :]
    tl.store(above + square, is_above.to(tl.uint8), mask=within)
    tl.store(depth + row * step + slot, level.to(tl.int64), mask=inside)
    line = (row * step + slot) * (step + 1)
    walked = (followed == 0) | (level % QUERIES == QUERIES - 1)
    tl.store(paths + line, tl.where(walked, level + 1, 0), mask=inside)
    number = tl.zeros((STEP, STEP), tl.int32) + other[None, :]
    place = line[:, None] + 1 + level[None, :]
    tl.store(paths + place, number, mask=within & (is_above != 0))


@triton.jit(do_not_specialize=("step",))
def _shape(parents, above, depth, paths, step, QUERIES: tl.constexpr, STEP: tl.constexpr, OVERLAP: tl.constexpr):
    """One row: all slots go from parent to parent at once, until each has come to slot 0.

    parents [rows, step - 1]; above [rows, step, step], 1 on a slot itself and on what it came by; depth [rows, step];
    paths [rows, step, 1 + step].
    """
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    slot = tl.arange(0, STEP)
    other = tl.arange(0, STEP)
    inside = slot < step
    here = tl.where(inside, slot, 0)
    passed = (here[:, None] == other[None, :]).to(tl.int32)
    found = tl.zeros((STEP,), tl.int32)
    while tl.max(here, axis=0) > 0:
        there = tl.load(parents + row * (step - 1) + here - 1, mask=here > 0, other=0).to(tl.int32)
        found += (here > 0).to(tl.int32)
        here = tl.maximum(tl.minimum(there, here - 1), 0)  # a parent comes first: this ends, whatever it is
        passed = passed | (here[:, None] == other[None, :]).to(tl.int32)
    followed = tl.sum(passed * inside[:, None].to(tl.int32), axis=0) - 1
    write_shape(passed, found, followed, above, depth, paths, row, step, QUERIES, STEP)


@triton.jit
def standing_path(ids, parents, top, column, meant, COLUMNS: tl.constexpr, EOS: tl.constexpr):
    """One row's longest path of nodes that are what the verifier chose where their parent stands, of equally long ones
    the first: its slots in order, and how many nodes they are. Beyond them every column names itself.

    ids and top [step], parents [step - 1]; nothing follows an EOS that was drafted. All slots go up to slot 0 at once,
    and those that come there by nothing but nodes that stand are compared.
    """
    stands = column <= meant
    here = tl.where(stands, column, 0)
    depth = tl.zeros((COLUMNS,), tl.int32)
    while tl.max(here, axis=0) > 0:
        is_node = here > 0
        parent = tl.load(parents + here - 1, mask=is_node, other=0).to(tl.int32)
        parent = tl.maximum(tl.minimum(parent, here - 1), 0)  # it comes first: this ends, whatever is there
        token = tl.load(ids + here, mask=is_node, other=0)
        chosen = tl.load(top + parent, mask=is_node, other=0)
        before = tl.load(ids + parent, mask=is_node, other=0)
        stands = stands & ((token == chosen) & ((parent == 0) | (before != EOS)))
        depth += is_node.to(tl.int32)
        here = parent
    best = tl.max(tl.where(stands, depth * COLUMNS + (COLUMNS - 1 - column), -1), axis=0)
    length = best // COLUMNS
    slot = COLUMNS - 1 - best % COLUMNS
    places = column
    left = length
    while left > 0:
        places = tl.where(column == left, slot, places)
        slot = tl.minimum(tl.load(parents + slot - 1).to(tl.int32), slot - 1)
        left -= 1
    return places, length


@triton.jit(do_not_specialize=("step", "path_row", "start_row"))
def _compact(
    keys,
    values,
    path,
    start,
    step,
    heads,
    columns,
    path_row,
    start_row,
    keys_layer,
    keys_row,
    keys_head,
    values_layer,
    values_row,
    values_head,
    STEP: tl.constexpr,
    HEAD: tl.constexpr,
    WIDTH: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One head of one layer of one row: what lies in slots start + path [step] goes to slots from the start on.

    Caches [layers, rows, heads, columns, HEAD], slots side by side. All is read before any of it is written.
    """
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    layer = (tl.program_id(1) // heads).to(tl.int64)
    slot = tl.arange(0, STEP)
    unit = tl.arange(0, WIDTH)
    begun = tl.load(start + row * start_row)
    source = tl.load(path + row * path_row + slot, mask=slot < step, other=0)
    moves = (slot < step) & (source != slot) & (begun + slot < columns)
    inside = moves[:, None] & (unit < HEAD)[None, :]
    read = (begun + source)[:, None] * HEAD + unit[None, :]
    write = (begun + slot)[:, None] * HEAD + unit[None, :]
    keys += layer * keys_layer + row * keys_row + head * keys_head
    values += layer * values_layer + row * values_row + head * values_head
    some_keys = tl.load(keys + read, mask=inside, other=0.0)
    some_values = tl.load(values + read, mask=inside, other=0.0)
    tl.debug_barrier()
    tl.store(keys + write, some_keys, mask=inside)
    tl.store(values + write, some_values, mask=inside)


# --- as operations ---------------------------------------------------------------------------------------------------


def tree_shape(parents: Tensor) -> Shape:
    """ops.tree_shape"""
    rows, step = parents.shape[0], parents.shape[1] + 1
    above = torch.empty((rows, step, step), dtype=torch.bool, device=parents.device)
    depth = torch.empty((rows, step), dtype=torch.int64, device=parents.device)
    paths = torch.empty((rows, step, 1 + step), dtype=torch.int32, device=parents.device)
    _shape[(rows,)](
        *(parents.contiguous(), above.view(torch.uint8), depth, paths, step),
        QUERIES=QUERIES,
        STEP=max(_LEAST, triton.next_power_of_2(step)),
        num_warps=1 if step <= 32 else 4,
        **launching(parents),
    )
    return above, depth, paths


def compact_path(keys: Tensor, values: Tensor, path: Tensor, start: Tensor) -> None:
    """ops.compact_path: beyond what the caches hold nothing is written"""
    layers, rows, heads, columns, head = keys.shape
    step = path.shape[1]
    _compact[(rows, layers * heads)](
        *(keys, values, path, start, step, heads, columns, path.stride(0), start.stride(0)),
        *(*keys.stride()[:3], *values.stride()[:3]),
        STEP=max(_LEAST, triton.next_power_of_2(step)),
        HEAD=head,
        WIDTH=triton.next_power_of_2(head),
        num_warps=4,
        **launching(keys),
    )
