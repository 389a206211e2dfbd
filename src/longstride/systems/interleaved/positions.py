"""What a slot's position embedding is told. An input slot has the position of the slot that it predicts.

    h = 1     0, 1, 2, 3, ...         Eq. 5
    h = 2     1, -1, 2, -2, 3, ...    Eq. 7: the sign is the direction, so that neighbours of one direction stay close
    h > 2     0, 0, 0, 0, 1, ...      Eq. 10: the index within the direction, which has an embedding of its own

Vanilla positions are those of h = 1 for any h.
"""

from __future__ import annotations

import torch
from torch import Tensor

from longstride.systems.interleaved.options import InterleavingOptions


def signals(slots: Tensor, options: InterleavingOptions) -> Tensor:
    """[...] slots -> [...] integers for the position embedding"""
    if options.h == 1 or options.signal == "vanilla":
        return slots
    if options.h == 2:
        ahead = slots // 2 + 1
        return torch.where(slots % 2 == 0, ahead, -ahead)
    return slots // options.h


def directions(slots: Tensor, options: InterleavingOptions) -> Tensor:
    """[...] slots -> [...] the direction each belongs to"""
    return slots % options.h
