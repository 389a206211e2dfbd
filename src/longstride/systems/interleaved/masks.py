"""Who sees whom among the slots: the relaxed causal mask M(h, c) of Eq. 4 and its ablations."""

from __future__ import annotations

from torch import Tensor

from longstride.nn import masks
from longstride.systems.interleaved.options import InterleavingOptions


def relaxed(step: int) -> masks.Rule:
    """M(h, c) with h·c = `step`: a slot sees its own step and all before it."""

    def rule(query_slots: Tensor, key_slots: Tensor) -> Tensor:
        return key_slots // step <= (query_slots // step)[..., None]

    return rule


def rule_of(options: InterleavingOptions) -> masks.Rule:
    """The rule that a model with these options was trained with."""
    seen = masks.causal if options.mask == "vanilla" or options.step == 1 else relaxed(options.step)
    if not options.independent or options.h == 1:
        return seen
    h = options.h

    def within_direction(query_slots: Tensor, key_slots: Tensor) -> Tensor:
        return seen(query_slots, key_slots) & (key_slots % h == (query_slots % h)[..., None])

    return within_direction
