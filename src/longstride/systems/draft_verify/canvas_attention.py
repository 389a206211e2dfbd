"""A drafter's pass over newest tokens and masks with attention by a kernel of our own.

The plain way writes keys and values into the cache, the masks' behind the canvas, and then reads all of it under a mask
that somebody has to make. Here one kernel does it all, walks over no more than there is, and of the last layer nothing
is computed for tokens but what the next pass will read of them. The kernel is imported at the first call, because it
needs Triton.
"""

from __future__ import annotations

import torch
from torch import Tensor

from longstride.nn.cache import Cache, EncoderState
from longstride.systems.draft_verify.model import Drafter


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
    drafter: Drafter,
    x: Tensor,
    place: Tensor | None,
    length: Tensor,
    window: int,
    cache: Cache,
    memory: EncoderState,
    asked: int,
) -> Tensor:
    """:meth:`Drafter.run_placed` for such a pass, x [rows, window + block, width] -> [rows, asked, width], the first
    `asked` masks'

    place, like x: what later layers are told again, if they are."""
    layers, memory_mask = drafter.decoder_layers(), memory.mask
    for number, layer in enumerate(layers):
        attention, residual, last = layer.attention, layer.attention_residual, number + 1 == len(layers)
        if place is not None and number > 0:
            x = x + place
        packed = attention.qkv(residual.enter(x))
        mixed = extend(packed, length, window, cache.keys[number], cache.values[number], last)
        if last:  # nobody needs more of the other masks than that they were seen
            x, mixed = x[:, window : window + asked], mixed[:, :asked]
        x = residual.leave(x, attention.out(mixed))
        x = layer._rest(x, memory.keys[number], memory.values[number], memory_mask)
    return drafter.decoder.norm(x)  # type: ignore[no-any-return]
