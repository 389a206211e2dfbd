"""Fewer kernels for inference on a CUDA device: which there are of our own, and the modules that can use them.

Off until somebody switches them on who has tried them (`fused_trials`). What needs Triton is imported when it is first
called. Attention has a file of its own, `decode_attention`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor, nn

KERNELS = {
    "norm": "residual sums with their norms",
    "relu": "products with their ReLU",
    "step": "causal steps: writing the cache and attention over it",
    "lines": "causal steps of rows that share their pasts",
    "mask": "attention over the cache with any other mask",
    "source": "attention over the source",
    "source-self": "attention of a source to itself",
    "product": "products of few slots",
    "embed": "what the first layer of an encoder or a step reads",
    "link": "chains of linked drafts",
    "candidates": "words that tables propose for a lattice",
    "edges": "scores of a lattice's edges",
    "paths": "the search through a lattice",
    "overlap": "starting all these while the kernel before them ends",
}
"""By name: what they are for."""
TYPES = (torch.float32, torch.float16, torch.bfloat16)
"""The numbers that kernels for inference are written for."""


def why_not_here(device: torch.device, dtype: torch.dtype, trial: Callable[[], str], triton: bool = True) -> str:
    """What keeps a kernel from being used, in a few words, by the place or by its trial; empty where nothing does."""
    if device.type != "cuda":
        return f"it expects a CUDA device, found {device}"
    if dtype not in TYPES:
        return f"it expects fp32, fp16 or bf16, found {dtype}"
    if triton and find_spec("triton") is None:
        return "it expects the package triton, found none"
    try:
        return trial()
    except Exception as error:  # a compiler that fails in whatever way of its own
        return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")


@dataclass(frozen=True)
class Kernel:
    """One of them, for one size of module."""

    name: str
    sizes: tuple[int, ...]
    trial: Callable[..., float] | None = None
    """(random numbers of a shape, *sizes) -> how far it is from what it should give; None: `fused_trials` has it"""


class Fusible(ABC):
    """A module that can use some of them, for inference alone."""

    @abstractmethod
    def kernels(self) -> list[Kernel]:
        """Those that fit it."""

    @abstractmethod
    def use(self, names: Collection[str]) -> None:
        """Use these of them from now on, and no others."""


def add_norm(x: Tensor, added: Tensor, norm: nn.LayerNorm) -> Tensor:
    """norm(x + added), [..., width]"""
    from longstride.nn.fused_kernels import add_norm as kernel

    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]  # Triton launches on the current one
        found: Tensor = kernel(x.contiguous(), added.contiguous(), norm.weight, norm.bias, norm.eps)
    return found


def embed(
    ids: Tensor, start: Tensor | None, tokens: Tensor, scale: float, places: tuple[Tensor, int], last: int
) -> tuple[Tensor, Tensor]:
    """What the first layer reads of ids [rows, step], [rows, step, width], and their slots from start [rows] on, or
    from 0

    places: a table of positions, and which row is position 0's; what lies beyond the `last` position has that one.
    """
    from longstride.nn.embed_kernels import embed as kernel

    with torch.cuda.device_of(ids):  # type: ignore[no-untyped-call]  # Triton launches on the current one
        found: tuple[Tensor, Tensor] = kernel(ids, start, tokens, scale, *places, last)
    return found


def linear_relu(x: Tensor, linear: nn.Linear) -> Tensor:
    """relu(linear(x)), [..., inputs] -> [..., outputs]: the library's own product, which can do this at its end"""
    flat = torch._addmm_activation(linear.bias, x.flatten(0, -2), linear.weight.t(), use_gelu=False)
    return flat.view(*x.shape[:-1], linear.out_features)
