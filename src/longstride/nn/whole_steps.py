"""Attention of steps whose slots see each other and all that is before them, by a kernel of our own; and its trial.

The relative of `decode_attention.extend`, for decoders that write several words at once and let them see each other's
inputs. The kernel is imported at the first call, because it needs Triton. Whoever uses it has asked :func:`why_not`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from longstride.nn.cache import Cache, Memory
from longstride.nn.decode_attention import HEADS
from longstride.nn.fused import why_not_here
from longstride.nn.layers import DecoderLayer

TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}
"""How far results may be from what they should be: a few last bits"""
ROWS, STEP, SLOTS = 3, 18, 96
"""Of the trial: more than one tile of queries and of keys, neither of them full."""


def extend(packed: Tensor, slots: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Write a step into the caches [rows, heads, longest, head], and let each slot see all of it and what is before it.

    packed [rows, step, 3 * width] holds queries, keys and values; slots [rows, step], each row's side by side.
    -> mixed values [rows, step, width], which do not depend on how long the caches are.
    """
    from longstride.nn import whole_steps_kernels as kernels

    with torch.cuda.device_of(packed):  # type: ignore[no-untyped-call]  # Triton launches on the current one
        found: Tensor = kernels.extend(packed.contiguous(), slots, keys, values)
    return found


def extend_all(layers: Sequence[DecoderLayer], x: Tensor, cache: Cache, slots: Tensor, memory: Memory) -> Tensor:
    """:func:`longstride.nn.layers.extend_all` for such a step."""
    memory_mask = memory.mask
    for number, layer in enumerate(layers):
        attention, residual = layer.attention, layer.attention_residual
        mixed = extend(attention.qkv(residual.enter(x)), slots, cache.keys[number], cache.values[number])
        x = residual.leave(x, attention.out(mixed))
        x = layer._rest(x, memory.keys[number], memory.values[number], memory_mask)
    return x


@cache
def why_not(device: torch.device, dtype: torch.dtype, head: int) -> str:
    """What keeps it from being used for heads of this width, in a few words; empty where nothing does."""

    def tried() -> str:
        if head not in HEADS:
            return f"it expects heads of {', '.join(map(str, HEADS))}, found {head}"
        worst = trial(device, dtype, head)
        return "" if worst <= TOLERANCE[dtype] else f"its results are {worst:.1g} away from what they should be"

    return why_not_here(device, dtype, tried)


@torch.inference_mode()
def trial(device: torch.device, dtype: torch.dtype, head: int) -> float:
    """The largest difference from plain arithmetic in float64, on random numbers."""
    generator = torch.Generator().manual_seed(0)
    heads, start = 2, torch.tensor([0, 36, SLOTS - STEP])

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    packed = random(ROWS, STEP, 3 * heads * head)
    slots = (start[:, None] + torch.arange(STEP)).to(device)
    filled = (torch.arange(SLOTS) < start[:, None])[:, None, :, None].to(device)
    # What is not written yet may hold anything.
    before = [random(ROWS, heads, SLOTS, head).masked_fill(~filled, float("nan")) for _ in range(2)]
    written = [old.clone() for old in before]
    found = extend(packed, slots, written[0], written[1])
    queries, *new = packed.view(ROWS, STEP, 3, heads, head).permute(2, 0, 3, 1, 4)
    index = slots[:, None, :, None].expand_as(queries)
    expected = [old.nan_to_num(0.0).scatter(2, index, fresh) for old, fresh in zip(before, new, strict=True)]
    for mine, right in zip(written, expected, strict=True):
        if not torch.equal(mine.nan_to_num(0.0), right):
            raise ArithmeticError("it leaves other keys or values in the cache than it was given")
    for row in range(ROWS):
        kept = [old[row : row + 1].clone() for old in before]
        if not torch.equal(extend(packed[row : row + 1], slots[row : row + 1], kept[0], kept[1])[0], found[row]):
            raise ArithmeticError("a row's numbers depend on other rows")
    visible = torch.arange(SLOTS, device=device) <= slots[:, None, -1:, None]
    right = attended(queries, expected[0], expected[1], visible)
    apart = (found.double() - right).abs() / right.abs().clamp(min=1)
    return float(apart.nan_to_num(float("inf")).max())


def attended(queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
    """In float64: queries, keys, values [rows, heads, slots, head], visible broadcasting -> [rows, queries, width]"""
    scores = queries.double() @ keys.double().transpose(2, 3) * queries.shape[-1] ** -0.5
    weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
    mixed: Tensor = weights @ values.double()
    return mixed.transpose(1, 2).flatten(2)
