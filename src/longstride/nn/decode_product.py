"""Linear layers that a decoder's steps go through: by the library, or by a kernel of our own where slots are few.

The kernel is imported at the first call, because it needs Triton.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from longstride.nn.fused import Fusible, Kernel

FEW = 64
"""So many slots, rows times step, the kernel is for: with more, arithmetic counts and the library's is better."""
MULTIPLE = 64
"""Of inputs and outputs: stripes of the weight are whole."""


def product(x: Tensor, linear: nn.Linear, relu: bool = False) -> Tensor:
    """linear(x), [..., inputs] -> [..., outputs], then ReLU if asked for; a slot's bits depend on that slot alone"""
    return product_plus(x, linear.weight, linear.bias, relu=relu)


def product_plus(
    x: Tensor, weight: Tensor, bias: Tensor | None, added: Tensor | None = None, relu: bool = False
) -> Tensor:
    """The same by weight [outputs, inputs] and bias, or by none; then plus `added` [..., outputs]"""
    from longstride.nn.decode_product_kernels import product as kernel

    more = None if added is None else added.flatten(0, -2).contiguous()
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]  # Triton launches on the current one
        flat: Tensor = kernel(x.flatten(0, -2).contiguous(), weight, bias, relu, added=more)
    return flat.view(*x.shape[:-1], weight.shape[0])


class StepLinear(nn.Linear, Fusible):
    """A linear layer that can use the kernel, for inference alone."""

    own = False
    """see :meth:`use`"""

    def serves(self, x: Tensor) -> bool:
        """Whether it does so for this input [..., inputs]."""
        return self.own and x.numel() <= FEW * self.in_features

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]"""
        return product(x, self) if self.serves(x) else super().forward(x)

    def kernels(self) -> list[Kernel]:
        """Where its sizes are whole multiples."""
        sizes = (self.in_features, self.out_features)
        return [] if any(size % MULTIPLE for size in sizes) else [Kernel("product", sizes)]

    def use(self, names: Collection[str]) -> None:
        """Use it, if it is among these."""
        self.own = "product" in names
