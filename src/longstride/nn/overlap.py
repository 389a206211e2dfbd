"""Whether kernels of our own start while the one before them ends: programmatic dependent launch, from sm_90 on.

A captured step is a chain of small kernels, each of which waits for the last. Between the end of one and the first
instruction of the next lies about as much time as the work itself takes. With this a kernel is started early, reads
what no kernel writes, weights above all, and only then waits for the kernel before it.

What makes it safe is one rule, which every kernel that is launched so keeps: all its programs wait before they read or
write anything that any kernel reads or writes in turn, what comes out of the memory pool included; before that they
read weights alone. Why this is enough, whatever comes before such a kernel:

- One of these. It is complete only when all its programs have waited, so not before the one before it is: link by link,
  when a wait is over all earlier kernels are complete and what they wrote is visible. That no earlier one still reads
  what is written then follows likewise.
- A kernel of a library's, which says nothing of what may start when: then the next starts when all its blocks have
  ended, and the wait is for the rest, its writes. Launched as ever, it has not begun before all before it was complete.
  One that a library itself starts early, or that lets others do so, has to wait before it ends for its own sake.
- A copy, a memset, an event of another stream, a whole graph: only from kernel to kernel can one start early, so that
  stream order holds as ever, in a graph as a full edge. The first kernel of a graph has no edge, and a graph begins
  when all before it in its stream is complete; a wait with nothing to wait for is over at once.

Whatever is launched as ever behind one of these starts when that one is complete, and with it all before.

Weights must not be written while kernels run that read them so: `fused_trials.switch` waits for whoever wrote them, and
nobody writes to a module that a runner has placed.

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
"""When a kernel lets the next one start: as its first act, or when its own wait is over. With the first, several wait
at a time and take room from those at work: products of 512 by 2048 took 3.7 us so, and 2.9 with the second, a norm and
a product in turns 3.7 and 3.6; attention and norms by themselves did not care."""


@dataclass
class _Overlap:
    on: bool = False
    manner: int = WAITED


_OVERLAP = _Overlap()


def switch(on: bool, manner: int = WAITED) -> None:
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
