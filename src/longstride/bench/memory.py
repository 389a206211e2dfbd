"""How much memory something took at its highest: probes for the host process and for a CUDA device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class MemoryProbe:
    """Three readings in bytes around a piece of work: what is held now, forget the peak, the peak since."""

    held: Callable[[], int]
    reset: Callable[[], None]
    peak: Callable[[], int]


def host_probe() -> MemoryProbe:
    """Resident memory of this process; where the system cannot forget a peak, that of the process's whole life."""
    return MemoryProbe(lambda: _status("VmRSS"), _forget_peak, lambda: _status("VmHWM"))


def cuda_probe(device: torch.device) -> MemoryProbe:
    """Memory that PyTorch allocated on a CUDA device: all that is loaded in this process counts."""
    return MemoryProbe(
        lambda: int(torch.cuda.memory_allocated(device)),
        lambda: torch.cuda.reset_peak_memory_stats(device),
        lambda: int(torch.cuda.max_memory_allocated(device)),
    )


def _status(name: str) -> int:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return _whole_life()
    for line in lines:
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return _whole_life()


def _whole_life() -> int:
    try:
        import resource
    except ImportError:  # there is none on Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _forget_peak() -> None:
    try:
        _CLEAR.write_text("5")
    except OSError:
        return
