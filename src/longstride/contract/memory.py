"""What decoding takes in memory, estimated before anything is made, against what the machine has.

Estimates count the large tensors that are sure to be made, so that nothing is refused that would have fitted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from longstride.contract.errors import OptionError

GIB = 1 << 30
SMALL = GIB // 4
"""Less than this is not worth asking the machine."""
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Need:
    """What a decoder's table takes on a device, by the sentences side by side and by one of the decoder's options."""

    bytes: Callable[[int, int], int]
    """(sentences, size) -> at least so many; grows with both"""
    device: torch.device
    option: str = ""
    """the option that `size` is; empty: none of them matters"""
    size: int = 1

    def check(self, decoder: str, sentences: int) -> None:
        """Refuse what there is no room for, and say what fits."""
        needed = self.bytes(sentences, self.size)
        if needed <= SMALL:
            return
        there = available(self.device)
        if there is None or needed <= there:
            return
        asked = f"{self.option} {self.size} for {sentences} sentences" if self.option else f"{sentences} sentences"
        fitting = []
        if self.option and (size := _most(lambda n: self.bytes(sentences, n), self.size, there)):
            fitting.append(f"{self.option} {size}")
        if rows := _most(lambda n: self.bytes(n, self.size), sentences, there):
            fitting.append(f"a batch of {rows}")
        remedy = f"{' or '.join(fitting)} would fit" if fitting else "not even one sentence would fit"
        raise OptionError(
            f"{decoder}: {asked} side by side would take about {_size(needed)} of memory, and {_size(there)} are "
            f"there; {remedy}."
        )


def available(device: torch.device) -> int | None:
    """Bytes that this process can have: those that are free and those it holds, which it may use anew; None: unknown"""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) + torch.cuda.memory_reserved(device)
    try:
        facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        held = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        limits = [1024 * int(facts["MemAvailable"].split()[0]) + held]
    except (OSError, KeyError, ValueError):
        return None
    for path in CGROUP_LIMITS:
        try:
            limits.append(int(Path(path).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return min(limits)


def _most(taken: Callable[[int], int], asked: int, there: int) -> int:
    """The largest number up to what was asked that fits; 0: none does."""
    fits, too_many = 0, asked + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if taken(middle) <= there:
            fits = middle
        else:
            too_many = middle
    return fits


def _size(count: int) -> str:
    return f"{count / GIB:,.1f} GiB"
