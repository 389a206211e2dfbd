"""Kernels that start while the one before them ends: programmatic dependent launch, from sm_90 on.

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

Weights must not be written while kernels run that read them so: a runner that places a module waits for whoever wrote
them, and nobody writes to a module that a runner has placed. Results do not depend on whether kernels overlap; the
table of kernels in force says it (`ops.kernels`).
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from longstride.ops.kernels import current

try:
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
except ImportError:  # an older Triton; nobody then asks for it
    gdc_launch_dependents = gdc_wait = None

CAPABILITY = (9, 0)
"""The least capability of a device whose kernels can overlap."""


@triton.jit
def begin(OVERLAP: tl.constexpr):
    """First of all: the next kernel may start, to read its weights."""
    if OVERLAP == 1:
        gdc_launch_dependents()


@triton.jit
def wait(OVERLAP: tl.constexpr):
    """Until all earlier kernels are complete: nothing that one of them may write, or read, is touched before this."""
    if OVERLAP:
        gdc_wait()
    if OVERLAP == 2:
        gdc_launch_dependents()


def launching(like: Tensor) -> dict[str, Any]:
    """What a launch on the device of a tensor is told: the kernel's own flag, and Triton's where kernels overlap."""
    table = current()
    if table is None or not table.overlap or not like.is_cuda:
        return {"OVERLAP": 0}
    return {"OVERLAP": table.overlap, "launch_pdl": True}


def unsupported_reason(device: torch.device) -> str:
    """What keeps kernels from overlapping on a CUDA device, in a few words; empty where nothing does."""
    found = torch.cuda.get_device_capability(device)
    if found < CAPABILITY:
        expected, there = (".".join(map(str, numbers)) for numbers in (CAPABILITY, found))
        return f"it expects a device of capability {expected} or later, found {there}"
    return "" if gdc_wait is not None else "it expects a Triton that can wait for an earlier kernel, found none"
