"""What a drafter with a causal prefix runs: the newest committed tokens of each row, then a block of masks.

Two ways to the same tensors: some thirty operations, or one kernel on a CUDA device where Triton is installed, which is
compared with them before it is used. A captured draft of two layers would spend as long on them as in one layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longstride import ops
from longstride.ops import additive
from longstride.systems.draft_verify.model import Drafter


@dataclass(frozen=True)
class Canvas:
    """The slots of one pass."""

    x: Tensor
    """[rows, step, width] what the first layer reads"""
    place: Tensor
    """[rows, step, width] their positions, which later layers may be told again"""
    slots: Tensor
    """[rows, step] the slots of the cache that keep their keys and values"""
    mask: Tensor
    """[rows, 1, step, cache slots] what attention adds to scores"""
    newest: Tensor | None = None
    """[rows] the last committed tokens, where they were found along the way"""


def lay_out(
    drafter: Drafter,
    tokens: Tensor,
    length: Tensor,
    window: ops.Length,
    mask_slots: Tensor,
    seen: ops.Length,
    behind: Tensor | None = None,
) -> Canvas:
    """The newest `window` of tokens [rows, columns], of which `length` [rows] count, and a block of masks.

    mask_slots [rows, canvas, width] is what masks read; `seen`: the slots of the cache. The block's own keys and values
    lie right behind the window, where the next tokens are written over them, or at `behind` [rows].
    """
    block = drafter.options.block
    first = (length - window).clamp(min=0)
    side_by_side = behind is None
    behind = first + window if behind is None else behind
    newest, masked = ops.slots_from(first, window), ops.slots_from(length, block)
    read = drafter.target_embedding(tokens.gather(1, newest)) * drafter.scale
    empty = ops.take(mask_slots, masked)
    keys = ops.arange(seen, tokens)
    of_prefix = ops.causal(newest, keys)
    of_block = (keys < length[:, None]) | ((keys >= behind[:, None]) & (keys < (behind + block)[:, None]))
    mask = torch.cat([of_prefix, of_block[:, None].expand(-1, block, -1)], dim=1)
    place = drafter.target_positions(torch.cat([newest, masked], dim=1))
    x = torch.cat([read, empty], dim=1) + place
    if side_by_side:
        slots = ops.slots_from(first, window + block)
    else:
        slots = torch.cat([newest, ops.slots_from(behind, block)], dim=1)
    return Canvas(x, place, slots, additive(mask[:, None], x))


def lay_out_fused(
    drafter: Drafter, tokens: Tensor, length: Tensor, window: int, mask_slots: Tensor, seen: int
) -> Canvas:
    """The same in one kernel."""
    x, place, slots, mask, newest = _in_one_kernel(drafter, tokens, length, window, mask_slots, True, seen)
    assert place is not None
    assert slots is not None
    assert mask is not None
    return Canvas(x, place, slots, mask, newest)


def lay_out_bare(
    drafter: Drafter, tokens: Tensor, length: Tensor, window: int, mask_slots: Tensor
) -> tuple[Tensor, Tensor | None, Tensor]:
    """x, place, where later layers are told it again, and newest tokens alone, for an attention that knows whom slots
    see"""
    again = drafter.options.add_positions != "first"
    x, place, _, _, newest = _in_one_kernel(drafter, tokens, length, window, mask_slots, again, None)
    return x, place, newest


def _in_one_kernel(
    drafter: Drafter, tokens: Tensor, length: Tensor, window: int, masked: Tensor, placed: bool, seen: int | None
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor]:
    from longstride.ops.cuda import canvas as canvas_kernels

    table, offset = drafter.target_positions.rows
    weight, block = drafter.target_embedding.weight, drafter.options.block
    found: tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor] = canvas_kernels.canvas(
        tokens,
        length,
        window,
        block,
        weight,
        drafter.scale,
        masked,
        table,
        offset,
        drafter.special.start,
        placed,
        seen,
    )
    return found
