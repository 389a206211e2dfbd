"""The machine in words, for records: no number means anything without it."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import torch

from longstride.contract import option


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


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
