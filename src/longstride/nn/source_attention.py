"""A source's attention to itself by a kernel of our own, for inference; who may call it, `fused_trials` finds out.

The kernel is imported at the first call, because it needs Triton. The relative for training is `short_attention`, those
for steps are in `decode_attention`.
"""

from __future__ import annotations

import torch
from torch import Tensor

LONGEST = 128
"""Slots of a source: for longer ones arithmetic counts, and the library's tiles are better."""


def serves(packed: Tensor, mask: Tensor | None) -> bool:
    """Whether it is for packed [rows, length, 3 * width], and a mask that is None or boolean and the same for all
    queries, [rows, 1, 1, length]."""
    rows, length, _ = packed.shape
    fits = mask is None or (mask.dtype == torch.bool and mask.shape == (rows, 1, 1, length) and mask.stride(3) == 1)
    return fits and length <= LONGEST


def attended(packed: Tensor, heads: int, mask: Tensor | None) -> Tensor:
    """Mixed values [rows, length, width] of queries, keys and values packed [rows, length, 3 * width]; mask as
    :func:`serves` had it. A row's numbers depend neither on the other rows nor on how far it is padded."""
    from longstride.nn import source_attention_kernels as kernels

    visible = None if mask is None else mask[:, 0, 0]
    with torch.cuda.device_of(packed):  # type: ignore[no-untyped-call]  # Triton launches on the current one
        found: Tensor = kernels.attended(packed.contiguous(), heads, visible)
    return found
