"""Local attention (Image Transformer, section 3.2, 1-D): slots are cut into blocks of equal length, and a slot sees
the block before its own and, of its own block, itself and what is before it.

So it sees between `block` + 1 and 2 * `block` slots however long the sequence is, and all at once a sequence of n slots
takes 2 * n * block scores instead of n * n.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.ops.attention import Causal


def within_reach(queries: Tensor, keys: Tensor, block: int) -> Tensor:
    """Positions [..., queries], [keys] or [..., 1, keys] -> [..., queries, keys] bool: not before the block before"""
    return keys >= ((queries // block - 1) * block)[..., None]


class LocalCausal(Causal):
    """The bias of slots [rows, step] that see themselves and what is before them, back to the block before their own"""

    def __init__(self, slots: Tensor, table: Callable[[], Tensor], block: int) -> None:
        super().__init__(slots, table)
        self.block = block

    def visible(self, keys: Any) -> Any:
        """[rows, step, keys] whether each slot sees the slots keys [keys] of the cache"""
        return super().visible(keys) & within_reach(self.slots, keys, self.block)


def local_self_attention(
    packed: Tensor, heads: int, block: int, dropout: float = 0.0, scale: float | None = None
) -> Tensor:
    """Packed queries, keys and values [rows, length, 3 * width] of a whole sequence -> [rows, length, width]"""
    rows, length, width = packed.shape[0], packed.shape[1], packed.shape[2] // 3
    blocks, head = -(-length // block), width // heads
    padded = F.pad(packed, (0, 0, 0, blocks * block - length)).view(rows, blocks, block, 3, heads, head)
    queries, keys, values = padded.permute(3, 0, 1, 4, 2, 5).unbind()  # [rows, blocks, heads, block, head] each
    # Before every block the one before it, before the first zeros: [rows, blocks, heads, 2 * block, head].
    keys, values = (torch.cat([F.pad(each, (0, 0, 0, 0, 0, 0, 1, -1)), each], dim=3) for each in (keys, values))
    place = torch.arange(2 * block, device=packed.device)
    seen = (place <= place[:block, None] + block).repeat(blocks, 1, 1)  # [blocks, block, 2 * block]
    seen[0, :, :block] = False
    mixed = F.scaled_dot_product_attention(
        queries.flatten(1, 2),
        keys.flatten(1, 2),
        values.flatten(1, 2),
        attn_mask=seen.repeat_interleave(heads, 0)[None],
        dropout_p=dropout,
        scale=scale,
    )
    mixed = mixed.view(rows, blocks, heads, block, head).transpose(2, 3).reshape(rows, blocks * block, width)
    return mixed[:, :length]
