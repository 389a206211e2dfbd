"""Products of a row or a few by a large weight, for what nobody verifies by: what prediction heads make of one state.

Where `decode_product` multiplies on tensor cores, for steps of up to some sixteen slots, here there is one row for each
sentence: a weight of thirty megabytes by a vector, which is reading the weight and nothing else. Padding the vector to
sixteen rows would take more room than the weight has. The kernel is imported at the first call, because it needs
Triton.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride.nn.decode_product import FEW as FEW_SLOTS
from longstride.nn.decode_product import product_plus
from longstride.nn.fused import Fusible, Kernel

FEW = 8
"""So many rows the kernel is for: it goes over them one after another."""
MULTIPLE = 64
"""Of inputs and outputs: tiles of the weight are whole."""


def row_product(x: Tensor, weight: Tensor, bias: Tensor, added: Tensor) -> Tensor:
    """x [rows, inputs] by weight [heads * width, inputs], plus bias and, to each head's part, added [rows, width]
    -> [rows, heads, width]"""
    from longstride.nn.row_product_kernels import row_product as kernel

    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]  # Triton launches on the current one
        found: Tensor = kernel(x.contiguous(), weight, bias, added.contiguous())
    return found.view(x.shape[0], -1, added.shape[1])


class RowLinear(nn.Linear, Fusible):
    """A linear layer whose owner may ask :func:`row_product` for parts of it, and `product_plus` where a slot's bits
    must be its own whatever the step's width, for inference alone."""

    own = False
    """see :meth:`use`"""

    def serves(self, rows: int) -> bool:
        """Whether there are so few of them, and it may be asked."""
        return self.own and rows <= FEW

    def serves_slots(self, x: Tensor) -> bool:
        """Whether the other product may be asked for the slots of x [..., width]."""
        return self.own and x[..., 0].numel() <= FEW_SLOTS

    def kernels(self) -> list[Kernel]:
        """Where inputs and outputs are whole multiples."""
        if self.in_features % MULTIPLE or self.out_features % MULTIPLE:
            return []
        return [Kernel("product", (self.in_features, self.out_features), trial)]

    def use(self, names: Collection[str]) -> None:
        """Use it, if it is among these."""
        self.own = "product" in names


def trial(random: Callable[..., Tensor], inputs: int, outputs: int) -> float:
    """How far both are from plain arithmetic in float64, for one row and for some; a row's bits are its own."""
    x, weight, bias, added = random(FEW, inputs), random(outputs, inputs), random(outputs), random(FEW, outputs)
    weight = weight * inputs**-0.5
    found = row_product(x, weight, bias, added)
    other = product_plus(x, weight[:MULTIPLE], bias[:MULTIPLE], added[:, :MULTIPLE])
    for one in range(FEW):
        part = slice(one, one + 1)
        if not torch.equal(row_product(x[part], weight, bias, added[part]), found[part]):
            raise ArithmeticError("a row's numbers depend on other rows")
        alone = product_plus(x[part], weight[:MULTIPLE], bias[:MULTIPLE], added[part, :MULTIPLE])
        if not torch.equal(alone, other[part]):
            raise ArithmeticError("a slot's numbers depend on the step's width")
    exact = F.linear(x.double(), weight.double(), bias.double()) + added.double()
    both, twice = torch.cat([found[:, 0], other], dim=1).double(), torch.cat([exact, exact[:, :MULTIPLE]], dim=1)
    apart = (both - twice).abs() / twice.abs().clamp(min=1)
    return float(apart.nan_to_num(float("inf")).max())
