"""Several processes training as one. The only file that knows of torchrun.

torchrun tells each process who it is by environment variables of its own (RANK, WORLD_SIZE, LOCAL_RANK); `join` reads
those, which is the one exception to the rule that only the command line reads the environment. Without them a process
trains alone and every method here does nothing.

An update takes `accumulation * world` consecutive batches of the epoch. Rank r takes the r-th, (r + world)-th, ... of
them, so that two processes see in one update what one process with twice the accumulation sees.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed
from torch import Tensor


@dataclass(frozen=True)
class Team:
    """This process's place among those that train together."""

    rank: int
    world: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this process writes files and reports."""
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """Add up a tensor over all processes, in place."""
        if self.world > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Whether the flag is up in any process. Reads back from the device."""
        if self.world == 1:
            return flag
        return bool(self.sum_(torch.full((), float(flag), device=self.device)) > 0)

    def from_leader(self, value: float) -> float:
        """The leading process's value. Reads back from the device."""
        if self.world == 1:
            return value
        mine = value if self.leads else 0.0
        return float(self.sum_(torch.full((), mine, dtype=torch.float64, device=self.device)))

    def gather(self, value: Any) -> list[Any]:
        """Everyone's values in order of rank (for checkpoints; slow)."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        torch.distributed.all_gather_object(values, value)
        return values

    def leave(self) -> None:
        """Leave the group that `join` made."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def alone(device: torch.device) -> Team:
    """A team of one."""
    return Team(0, 1, device)


def join(device: torch.device) -> Team:
    """Join the other processes if torchrun or the caller started some; on CUDA each takes the GPU of its local rank."""
    if not torch.distributed.is_available():
        return alone(device)
    launched = "RANK" in os.environ and "WORLD_SIZE" in os.environ
    if not launched and not torch.distributed.is_initialized():
        return alone(device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", device.index or 0)))
        torch.cuda.set_device(device)
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Team(torch.distributed.get_rank(), torch.distributed.get_world_size(), device)
