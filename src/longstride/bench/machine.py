"""The machine in words, for records, and how much of its memory something took at its highest."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from longstride.contract import option

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_CPUINFO = Path("/proc/cpuinfo")
_ARM_PARTS = {
    "0xd03": "Cortex-A53",
    "0xd08": "Cortex-A72",
    "0xd0b": "Cortex-A76",
    "0xd0c": "Neoverse-N1",
    "0xd40": "Neoverse-V1",
    "0xd49": "Neoverse-N2",
    "0xd4f": "Neoverse-V2",
}
"""Of ARM's own designs Linux tells a number where it tells others' names."""


@dataclass(frozen=True)
class Machine:
    """What a measurement ran on."""

    device: str = option("", "Name of the accelerator, or of the processor where there is none in use.")
    cpu: str = option("", "Name of the processor.")
    threads: int = option(1, "Threads that PyTorch may use on the processor.", least=1, most=10**6)
    python: str = option("", "Version of Python.")
    torch: str = option("", "Version of PyTorch, with what it was built for.")
    system: str = option("", "Operating system.")


def describe_machine(device: torch.device | None = None) -> Machine:
    """This machine, with `device` as the one that is measured."""
    cpu = _cpu_name()
    on_cuda = device is not None and device.type == "cuda"
    return Machine(
        device=torch.cuda.get_device_name(device) if on_cuda else cpu,
        cpu=cpu,
        threads=torch.get_num_threads(),
        python=platform.python_version(),
        torch=str(torch.__version__),
        system=platform.system(),
    )


def _cpu_name(cpuinfo: Path = _CPUINFO) -> str:
    arm = _ARM_PARTS.get(_field(cpuinfo, "CPU part"), "") if _field(cpuinfo, "CPU implementer") == "0x41" else ""
    return _field(cpuinfo, "model name") or arm or platform.processor() or platform.machine()


def _field(path: Path, name: str) -> str:
    """What a file of the kernel's says behind a name; nothing where it does not."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


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
    kilobytes = _field(_STATUS, name + ":").split()
    return int(kilobytes[0]) * 1024 if kilobytes else _whole_life()


def _whole_life() -> int:
    try:
        import resource
    except ImportError:  # there is none on Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _forget_peak() -> None:
    with suppress(OSError):
        _CLEAR.write_text("5")
