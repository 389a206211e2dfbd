"""The reference runner: plain PyTorch, everywhere."""

from __future__ import annotations

import os
from functools import partial

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


if hasattr(os, "register_at_fork"):
    # PyTorch's threads are not there in a forked process, and an operation that is shared out would wait for them.
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))
