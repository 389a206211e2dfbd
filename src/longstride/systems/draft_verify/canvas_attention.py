"""A drafter's pass over newest tokens and masks with attention by a kernel of our own; and its trial.

The plain way writes keys and values into the cache, the masks' behind the canvas, and then reads all of it under a mask
that somebody has to make. Here one kernel does it all, walks over no more than there is, and of the last layer nothing
is computed for tokens but what the next pass will read of them. The kernel is imported at the first call, because it
needs Triton. Whoever uses it has asked :func:`why_not`.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from longstride.nn.cache import Cache, EncoderState
from longstride.ops.cuda.self_test import TOLERANCE, attended
from longstride.ops.cuda.table import HEADS
from longstride.ops.kernels import why_not_here
from longstride.systems.draft_verify.model import Drafter

SLOTS = 96
"""Of the trial's cache: more than one tile of keys, none of them full."""


def extend(packed: Tensor, length: Tensor, window: int, keys: Tensor, values: Tensor, last: bool) -> Tensor:
    """Let the newest `window` tokens up to length [rows] see earlier ones, and masks see the tokens and each other.

    packed [rows, window + block, 3 * width] holds queries, keys and values of both, of which the tokens' keys and
    values go into the caches [rows, heads, longest, head], at their positions.
    -> mixed values [rows, window + block, width], or of the `last` layer the masks' alone, [rows, block, width]
    """
    from longstride.ops.cuda import canvas_attention as kernels

    with torch.cuda.device_of(packed):  # type: ignore[no-untyped-call]  # Triton launches on the current one
        found: Tensor = kernels.extend(packed.contiguous(), length, window, keys, values, last)
    return found


def run(
    drafter: Drafter, x: Tensor, place: Tensor | None, length: Tensor, window: int, cache: Cache, memory: EncoderState
) -> Tensor:
    """:meth:`Drafter.run_placed` for such a pass, x [rows, window + block, width] -> the masks' [rows, block, width]

    place, like x: what later layers are told again, if they are."""
    layers, memory_mask = drafter.decoder_layers(), memory.mask
    for number, layer in enumerate(layers):
        attention, residual, last = layer.attention, layer.attention_residual, number + 1 == len(layers)
        if place is not None and number > 0:
            x = x + place
        packed = attention.qkv(residual.enter(x))
        mixed = extend(packed, length, window, cache.keys[number], cache.values[number], last)
        x = residual.leave(x[:, window:] if last else x, attention.out(mixed))
        x = layer._rest(x, memory.keys[number], memory.values[number], memory_mask)
    return drafter.decoder.norm(x)  # type: ignore[no-any-return]


@cache
def why_not(device: torch.device, dtype: torch.dtype, head: int) -> str:
    """What keeps it from being used for heads of this width, in a few words; empty where nothing does."""

    def tried() -> str:
        if head not in HEADS:
            return f"it expects heads of {', '.join(map(str, HEADS))}, found {head}"
        worst = max(trial(device, dtype, head, last=last) for last in (False, True))
        return "" if worst <= TOLERANCE[dtype] else f"its results are {worst:.1g} away from what they should be"

    return why_not_here(device, dtype, tried)


@torch.inference_mode()
def trial(
    device: torch.device, dtype: torch.dtype, head: int, window: int = 18, block: int = 17, last: bool = False
) -> float:
    """The largest difference from plain arithmetic in float64, on random numbers."""
    generator = torch.Generator().manual_seed(0)
    heads, length = 2, torch.tensor([0, 5, window, 50, SLOTS])
    rows = len(length)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    packed = random(rows, window + block, 3 * heads * head)
    first = (length - window).clamp(min=0)
    newest = (first[:, None] + torch.arange(window)).to(device)
    filled = (torch.arange(SLOTS) < first[:, None])[:, None, :, None].to(device)
    # What is not written yet may hold anything.
    before = [random(rows, heads, SLOTS, head).masked_fill(~filled, float("nan")) for _ in range(2)]
    written = [old.clone() for old in before]
    length = length.to(device)
    found = extend(packed, length, window, written[0], written[1], last)

    queries, *new = packed.view(rows, window + block, 3, heads, head).permute(2, 0, 3, 1, 4)
    index = newest[:, None, :, None].expand(-1, heads, -1, head)
    expected = [
        old.nan_to_num(0.0).scatter(2, index, fresh[:, :, :window]) for old, fresh in zip(before, new, strict=True)
    ]
    for mine, right in zip(written, expected, strict=True):
        if not torch.equal(mine.nan_to_num(0.0), right):
            raise ArithmeticError("it leaves other keys or values in the cache than it was given")
    for row in range(rows):
        kept = [old[row : row + 1].clone() for old in before]
        alone = extend(packed[row : row + 1], length[row : row + 1], window, kept[0], kept[1], last)
        if not torch.equal(alone[0], found[row]):
            raise ArithmeticError("a row's numbers depend on other rows")
    keys, values = (torch.cat([old, fresh[:, :, window:]], dim=2) for old, fresh in zip(expected, new, strict=True))
    right = attended(queries, keys, values, _visible(length, newest, block)[:, None])
    apart = (found.double() - right[:, window:] if last else found.double() - right).abs()
    apart = apart / (right[:, window:] if last else right).abs().clamp(min=1)
    return float(apart.nan_to_num(float("inf")).max())


def _visible(length: Tensor, newest: Tensor, block: int) -> Tensor:
    """[rows, window + block, SLOTS + block] who sees whom: tokens at newest [rows, window] and masks, of the cache's
    slots and the masks behind them"""
    slots = torch.arange(SLOTS, device=length.device)
    rows, window = newest.shape
    of_tokens = slots <= newest[..., None]
    of_masks = (slots < length[:, None])[:, None].expand(-1, block, -1)
    among = (torch.arange(window + block, device=length.device) >= window)[:, None].expand(rows, -1, block)
    return torch.cat([torch.cat([of_tokens, of_masks], dim=1), among], dim=2)
