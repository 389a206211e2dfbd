"""The trial of steps whose past lies in other rows: they must give what steps over moved caches give, bit for bit.

Knows kernels and plain tensors alone; who asks for it, and the other trials, are in `fused_trials`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from longstride.nn.decode_attention import extend

ROWS, SLOTS = 4, 112
"""More than one tile of keys."""


def lines(random: Callable[..., Tensor], head: int) -> float:
    """0, or raises where anything differs. Two pairs of rows, each at its own slot, with pasts anywhere in the pair."""
    heads = 2
    packed, start = random(ROWS, 1, 3 * heads * head), torch.tensor([37, 37, 97, 97])
    slots = start[:, None].to(packed.device)
    slot = torch.arange(SLOTS)
    filled = (slot < start[:, None])[:, None, :, None].to(packed.device)
    before = [random(ROWS, heads, SLOTS, head).masked_fill(~filled, float("nan")) for _ in range(2)]
    first = torch.arange(ROWS)[:, None] // 2 * 2
    line = first + (slot * 5 + torch.arange(ROWS)[:, None] * 3) // 4 % 2
    line = line.int().to(packed.device)
    index = line.long()[:, None, :, None].expand_as(before[0])
    moved = [old.gather(0, index) for old in before]
    expected = extend(packed, slots, moved[0], moved[1])
    if not torch.equal(extend(packed, slots, before[0], before[1], line), expected):
        raise ArithmeticError("a past in other rows gives other numbers than one that was moved")
    own = slots[:, None, :, None].expand(-1, heads, 1, head)
    for written, right in zip(before, moved, strict=True):
        if not torch.equal(written.gather(2, own), right.gather(2, own)):
            raise ArithmeticError("it leaves other keys or values in the cache than it was given")
    return 0.0
