"""The run's clock: wall time, and the part of it that was spent on updates. The device is awaited only at pauses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Clock:
    """Counts from when it is made."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._started = time.perf_counter()
        self._paused = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds in all."""
        return time.perf_counter() - self._started

    @property
    def working(self) -> float:
        """Seconds outside of pauses."""
        return self.elapsed - self._paused

    def settle(self) -> None:
        """Wait until the device has done all it was given."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """What happens inside (validation, checkpoints) does not count as working."""
        self.settle()
        before = self.elapsed
        try:
            yield
        finally:
            self.settle()
            self._paused += self.elapsed - before
