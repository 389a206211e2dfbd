"""Tensors side by side in one piece of memory, and the same once more on the host: one copy brings all of them.

What a host reads after every iteration is a few numbers a row. Fetched one by one, each costs a copy and fresh memory
that a device can write to, some ten microseconds, which is a share of an iteration that can be seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

ALIGNMENT = 8
"""Bytes that the largest of the numbers has: tensors begin at multiples of it."""

Shapes = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]


class HostCopy:
    """Tensors by name, on the device and, as they were when they were last sent, on the host."""

    def __init__(self, shapes: Shapes, device: torch.device) -> None:
        ends = [0]
        for dtype, shape in shapes.values():
            ends.append(ends[-1] + -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT)
        # Ordinary tensors: these may be written within inference mode and without it.
        with torch.inference_mode(False):
            self.whole = torch.zeros(ends[-1], dtype=torch.uint8, device=device)
            """the piece of memory, for who has to name all that changes"""
            on_cuda = device.type == "cuda"
            copied = torch.zeros(ends[-1], dtype=torch.uint8, pin_memory=True) if on_cuda else None
            self.here = _views(self.whole, shapes, ends)
            """on the device"""
            self.seen = self.here if copied is None else _views(copied, shapes, ends)
            """on the host"""
        self._copied = copied
        self._sent = torch.cuda.Event() if on_cuda else None  # type: ignore[no-untyped-call]
        self._device = device

    def send(self) -> None:
        """Have the host see what is here now, or will be when all that was asked for has been done."""
        if self._copied is not None:
            self._copied.copy_(self.whole, non_blocking=True)
        if self._sent is not None:
            self._sent.record(torch.cuda.current_stream(self._device))

    def wait(self) -> None:
        """Until what was sent has arrived."""
        if self._sent is not None:
            self._sent.synchronize()


def _views(whole: Tensor, shapes: Shapes, ends: list[int]) -> dict[str, Tensor]:
    found = {}
    for first, (name, (dtype, shape)) in zip(ends, shapes.items(), strict=False):
        found[name] = whole[first : first + math.prod(shape) * dtype.itemsize].view(dtype).view(shape)
    return found
