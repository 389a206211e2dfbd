"""Whether kernels of our own start while the one before them ends: programmatic dependent launch, from sm_90 on.

A captured step is a chain of small kernels, each of which waits for the last. Between the end of one and the first
instruction of the next lies about as much time as the work itself takes. With this a kernel is started early, reads
what no kernel writes, weights above all, and only then waits for the kernel before it.

What makes it safe is one rule, which every kernel that is launched so keeps: all its programs wait before they read or
write anything that any kernel reads or writes in turn, what comes out of the memory pool included; before that they
read weights and tables alone. A kernel is then not complete before the one before it is, and so, link by link, all
earlier ones are when a wait is over. Kernels of libraries lie in between as ever: they start when all before them is
complete, and what follows them waits for them.

The switch is one for the process, because what lies between model calls belongs to no module. Results do not depend on
it. Imports no Triton; the instructions are in `overlap_kernels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

CAPABILITY = (9, 0)
"""of a device that can do it"""
FIRST, WAITED = 1, 2
"""When a kernel lets the next one start: as its first act, or when its own wait is over."""


@dataclass
class _Overlap:
    on: bool = False
    manner: int = FIRST


_OVERLAP = _Overlap()


def switch(on: bool, manner: int = FIRST) -> None:
    """From now on, kernels are launched so, or as ever."""
    _OVERLAP.on, _OVERLAP.manner = on, manner


def switched_on() -> bool:
    """Whether they are."""
    return _OVERLAP.on


def launching(like: Tensor) -> dict[str, Any]:
    """What a launch on the device of a tensor is told: the kernel's own flag, and Triton's where it is one of these."""
    if not (_OVERLAP.on and like.is_cuda):
        return {"OVERLAP": 0}
    return {"OVERLAP": _OVERLAP.manner, "launch_pdl": True}


def why_not(device: torch.device) -> str:
    """What keeps kernels from overlapping on a CUDA device, in a few words; empty where nothing does."""
    from longstride.nn.overlap_kernels import KNOWN

    found = torch.cuda.get_device_capability(device)
    if found < CAPABILITY:
        return f"it expects a device of capability {_dotted(CAPABILITY)} or later, found {_dotted(found)}"
    return "" if KNOWN else "it expects a Triton that can wait for an earlier kernel, found one that cannot"


def _dotted(numbers: tuple[int, int]) -> str:
    return ".".join(map(str, numbers))
