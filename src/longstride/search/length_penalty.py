"""Length penalties: how a hypothesis's log-probability becomes a score comparable across lengths.

A score is log-probability / penalty(length), the length counting EOS.

- gnmt:    ((5 + length) / 6) ** strength   (Wu et al. 2016, Eq. 14, without coverage)
- average: length ** strength               (strength 1 is the mean log-probability per token)
- none:    1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.contract import option
from longstride.contract.options import Options

STRETCH = 64
"""Numbers that every processor's vectors, and a few of them side by side, divide."""


@dataclass(frozen=True)
class LengthPenalty(Options):
    """A kind of penalty with its strength."""

    kind: Literal["gnmt", "average", "none"] = option(help="See above.")
    strength: float = option(help="The exponent.", least=-10, most=10)

    def __call__(self, length: Tensor) -> Tensor:
        """[...] lengths counting EOS -> [...] float64 divisors"""
        length = length.to(torch.float64)
        if self.kind == "gnmt":
            return _power((5 + length) / 6, self.strength)
        if self.kind == "average":
            return _power(length, self.strength)
        return torch.ones_like(length)


def _power(base: Tensor, exponent: float) -> Tensor:
    """To the last bit the same for equal numbers, wherever they stand and whatever stands beside them.

    On a processor PyTorch raises whole vectors by one function and what is left over by another, which differs in the
    last bit for some numbers; so here nothing is left over.
    """
    if base.device.type != "cpu":
        return base**exponent
    count = base.numel()
    whole = F.pad(base.reshape(-1), (0, -count % STRETCH), value=1.0)
    return (whole**exponent)[:count].view(base.shape)
