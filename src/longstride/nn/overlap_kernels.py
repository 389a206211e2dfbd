"""What a Triton kernel says to overlap with the kernels before and after it; the rule it keeps is in `overlap`.

Imports Triton, so only what has a CUDA device imports this.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import triton
import triton.language as tl

try:
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
except ImportError:  # an older Triton; nobody then asks for it
    gdc_launch_dependents = gdc_wait = None

KNOWN = gdc_wait is not None
"""Whether this Triton has the instructions."""


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
