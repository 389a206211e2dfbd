"""One pass of a drafter's decoder: from committed tokens to the states of the masks behind them.

With a causal prefix the newest tokens and the masks are run, with a full one the whole canvas. What is made of the
states, logits or tokens, is for others to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride import ops
from longstride.nn.cache import Cache, EncoderState
from longstride.systems.draft_verify import canvas_attention
from longstride.systems.draft_verify.canvas import lay_out, lay_out_bare, lay_out_fused
from longstride.systems.draft_verify.model import Drafter


@dataclass(frozen=True)
class States:
    """What a pass leaves."""

    hidden: Tensor
    """[rows, block, width] of the masks that were asked for"""
    newest: Tensor | None = None
    """[rows] the tokens before them, START where there is none, if they were found along the way"""


Pass = Callable[[Tensor, Tensor, int | Tensor, int, Tensor, Cache, EncoderState], States]
"""(tokens, length [rows], window, block, mask slots, cache, memory) -> States; the window is a number, or a tensor [1]
that holds one"""


@dataclass(frozen=True)
class Own:
    """Which kernels of our own a causal pass may use, by those who have asked whether they are sound."""

    canvas: bool = False
    """what it reads"""
    attention: bool = False
    """its attention, where modules may use theirs too; only with the former"""


NOTHING = Own()


def of(drafter: Drafter, own: Own = NOTHING) -> Pass:
    """The one that its prefix asks for."""
    return causal(drafter, own) if drafter.options.prefix == "causal" else full(drafter)


def causal(drafter: Drafter, own: Own) -> Pass:
    """The newest tokens of each row, then its masks."""

    def run(
        tokens: Tensor,
        length: Tensor,
        window: int | Tensor,
        block: int,
        mask_slots: Tensor,
        cache: Cache,
        memory: EncoderState,
    ) -> States:
        wide: int = ops.length(window)
        fused = own.canvas
        if fused and own.attention and ops.uses("mask"):
            x, place, newest = lay_out_bare(drafter, tokens, length, wide, mask_slots)
            hidden = canvas_attention.run(drafter, x, place, length, wide, cache, memory, block)
            return States(hidden, newest)
        given = (drafter, tokens, length, wide, mask_slots, cache.longest)
        found = lay_out_fused(*given) if fused else lay_out(*given)
        asked = (wide, wide + block)
        hidden = drafter.run_placed(found.x, found.place, found.slots, found.mask, cache, memory, asked)
        return States(hidden[:, :block], found.newest)  # all of it; graphs know its width by this

    return run


def full(drafter: Drafter) -> Pass:
    """The whole canvas."""
    trained = drafter.options.block

    def run(
        tokens: Tensor,
        length: Tensor,
        window: int | Tensor,
        block: int,
        mask_slots: Tensor,
        cache: Cache,
        memory: EncoderState,
    ) -> States:
        canvas = mask_slots.shape[1]
        slots = ops.slots_from(torch.zeros_like(length), canvas)
        # There may be fewer tokens than slots of the canvas or, with trees, more.
        given = drafter.target_embedding(F.pad(tokens, (0, trained))[:, :canvas]) * drafter.scale
        embedded = torch.where((slots < length[:, None])[..., None], given, mask_slots)
        seen = ops.arange(cache.longest, tokens)
        mask = (seen < (length + trained)[:, None])[:, None].expand(-1, canvas, -1)
        hidden = drafter.run(embedded, slots, slots, mask, cache, memory)
        return States(ops.take(hidden, ops.slots_from(length, block)))

    return run
