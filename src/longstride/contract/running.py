"""What a system declares and a runtime carries out.

A program is a function of tensors with fixed shapes; the state it may write in place (caches) is among its arguments. A
runner carries programs out: eagerly, or from copies it compiled or captured. Runners know no system.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)

Precision = Literal["fp64", "fp32", "fp16", "bf16"]

DTYPES: dict[str, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


@dataclass(frozen=True)
class Program:
    """A named function of tensors (or tuples and dataclasses of tensors) over a module's weights."""

    name: str
    function: Callable[..., Any]


class Runner(ABC):
    """Carries out programs on one device in one precision."""

    name: str
    device: torch.device
    precision: Precision

    @property
    def dtype(self) -> torch.dtype:
        """The type that weights and activations have."""
        return DTYPES[self.precision]

    @abstractmethod
    def place(self, module: M) -> M:
        """Bring a module's weights to this runner's device and precision, ready for inference."""

    @abstractmethod
    def call(self, program: Program, *arguments: Any) -> Any:
        """Run a program without tracking gradients."""
