"""A Triton kernel for the products of a decoder step: few rows by a weight, with what follows them.

Libraries choose among kernels by the number of rows, and so a slot's bits depend on how many there are. Here a program
has up to 16 rows and some outputs, and walks over all inputs in one order, whatever the number of rows. What bounds a
product of so few rows is reading the weight: many programs with a narrow stripe of it each, several tiles under way.

Imports Triton, so only what has a CUDA device imports this. Knows no modules.
"""
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

_ROWS = 16
"""The least that products on tensor cores take."""


@dataclass
class Walk:
    """How a program goes over its stripe of the weight. Bits depend on it, so all calls share one."""

    outputs: int
    """in a stripe"""
    inputs: int
    """at a time; 64 where this is no divisor"""
    warps: int
    stages: int
    """tiles under way"""


WALK = Walk(outputs=16, inputs=128, warps=2, stages=4)


@triton.jit(do_not_specialize=("rows",))
def _product(
    x,
    weight,
    bias,
    out,
    rows,
    outputs,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BIAS: tl.constexpr,
    RELU: tl.constexpr,
):
    """out [rows, outputs] = x [rows, WIDTH] by weight [outputs, WIDTH], and what is asked for after it."""
    n = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    i = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, INPUTS)
    real = (i < rows)[:, None]
    x_from = x + i[:, None] * WIDTH + k[None, :]
    weight_from = weight + n[None, :] * WIDTH + k[:, None]
    total = tl.zeros((ROWS, OUTPUTS), tl.float32)
    for first in range(0, WIDTH, INPUTS):
        some = tl.load(x_from + first, mask=real, other=0.0)
        stripe = tl.load(weight_from + first)
        total = tl.dot(some, stripe, total, input_precision="ieee")
    if BIAS:
        total += tl.load(bias + n).to(tl.float32)[None, :]
    if RELU:
        total = tl.maximum(total, 0.0)
    tl.store(out + i[:, None] * outputs + n[None, :], total.to(x.dtype.element_ty), mask=real)


def product(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    """x [rows, inputs], contiguous, by weight [outputs, inputs], plus bias [outputs] -> [rows, outputs]"""
    rows, (outputs, inputs) = x.shape[0], weight.shape
    out = x.new_empty((rows, outputs))
    _product[(outputs // WALK.outputs, triton.cdiv(rows, _ROWS))](
        *(x, weight, bias, out, rows, outputs),
        ROWS=_ROWS,
        WIDTH=inputs,
        INPUTS=WALK.inputs if inputs % WALK.inputs == 0 else 64,
        OUTPUTS=WALK.outputs,
        BIAS=bias is not None,
        RELU=relu,
        num_warps=WALK.warps,
        num_stages=WALK.stages,
    )
    return out
