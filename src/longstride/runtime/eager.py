"""The reference runner: plain PyTorch, everywhere."""

from __future__ import annotations

import torch

from longstride.contract import OptionError, Precision, Runner
from longstride.ops import avoid_planned_attention


class EagerRunner(Runner):
    """Calls programs as they are, as every runner does by default."""

    name = "eager"

    def __init__(self, device: torch.device | str = "cpu", precision: Precision = "fp32") -> None:
        self.device = torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise OptionError(f"device {device} was asked for, but PyTorch finds no CUDA device here; use cpu.")
        self.precision = precision
        avoid_planned_attention()
