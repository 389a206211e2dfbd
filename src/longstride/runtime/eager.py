"""The reference runner: plain PyTorch, everywhere."""

from __future__ import annotations

from typing import Any

import torch

from longstride.contract import OptionError, Precision, Program, Runner
from longstride.contract.running import M
from longstride.ops import avoid_planned_attention


class EagerRunner(Runner):
    """Calls programs as they are."""

    name = "eager"

    def __init__(self, device: torch.device | str = "cpu", precision: Precision = "fp32") -> None:
        self.device = torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise OptionError(f"device {device} was asked for, but PyTorch finds no CUDA device here; use cpu.")
        self.precision = precision
        avoid_planned_attention()

    def place(self, module: M) -> M:
        """Move, convert, and switch dropout off."""
        return module.to(device=self.device, dtype=self.dtype).eval().requires_grad_(False)

    @torch.inference_mode()
    def call(self, program: Program, *arguments: Any) -> Any:
        """Run it."""
        return program.function(*arguments)
