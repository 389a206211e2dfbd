"""Attention of a decoder step by kernels of our own; who may call them, `fused_trials` finds out.

The kernels are imported at the first call, because they need Triton. The relative for training is `short_attention`.
"""

from __future__ import annotations

import torch
from torch import Tensor

HEADS = (16, 32, 64, 128)
"""Widths of a head that the kernels are written for."""


def extend(packed: Tensor, slots: Tensor, keys: Tensor, values: Tensor, lines: Tensor | None = None) -> Tensor:
    """Write a step into the caches [rows, heads, longest, head], and let each slot see itself and what is before it.

    packed [rows, step, 3 * width] holds queries, keys and values; slots [rows, step], each row's side by side. With
    lines [rows, longest] int32, what is before lies in the rows that they name; no step may write where another row of
    it reads.
    -> mixed values [rows, step, width], which depend neither on the step's width nor on how long the caches are.
    """
    from longstride.nn import decode_attention_kernels as kernels

    with torch.cuda.device_of(packed):  # type: ignore[no-untyped-call]  # Triton launches on the current one
        found: Tensor = kernels.extend(packed.contiguous(), slots, keys, values, lines)
    return found


def read(queries: Tensor, keys: Tensor, values: Tensor, added: Tensor, each: bool) -> Tensor:
    """Mixed values [rows, queries, width] of queries like them over keys and values [rows, heads, count, head].

    added is added to scores, 0 or -inf: [rows, 1, queries, count] where it says it for `each` query by itself, else
    [rows, 1, 1, count]. What no query sees may hold anything.
    """
    from longstride.nn import decode_attention_kernels as kernels

    with torch.cuda.device_of(queries):  # type: ignore[no-untyped-call]  # Triton launches on the current one
        found: Tensor = kernels.read(queries, keys, values, added, each)
    return found
