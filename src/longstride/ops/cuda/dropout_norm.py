"""The end of a post-norm residual block as one operator that autograd and torch.compile know; off CUDA nobody calls it.

The kernels lie in `dropout_norm_kernels`, which is imported at the first call, because it needs Triton. A compiled
graph sees an operator: one graph serves all numbers of rows. Dropout is drawn from a seed that comes from PyTorch's own
generator, so that a restored generator gives the same run again. The relative for inference is `add_norm`.
"""

from __future__ import annotations

import torch
from torch import Tensor

WIDTHS = (256, 512)
"""What the kernels are written for: rows that one warp reads in whole vectors and holds in its registers."""
DTYPES = (torch.bfloat16, torch.float16)
CONDITION = "training; layer norm after the sum, widths of 256 or 512"


def supports(x: Tensor, added: Tensor, weight: Tensor, bias: Tensor | None, eps: float, dropout: float = 0.0) -> bool:
    """Whether :func:`add_norm` can take the place of the library's kernels."""
    if bias is None or x.dtype not in DTYPES or added.dtype != x.dtype or not torch.is_grad_enabled():
        return False
    return x.shape[-1] in WIDTHS and x.shape == added.shape


def add_norm(x: Tensor, added: Tensor, weight: Tensor, bias: Tensor, eps: float, dropout: float = 0.0) -> Tensor:
    """ops.add_norm"""
    seed = torch.randint(0, 2**31 - 1, (1,), device=x.device) if dropout else None
    normed: Tensor = _add_norm(x, added, weight, bias, seed, dropout, eps)[0]
    return normed


@torch.library.custom_op(
    "longstride::dropout_add_norm",
    mutates_args=(),
    schema="(Tensor x, Tensor block, Tensor weight, Tensor bias, Tensor? seed, float dropout, float epsilon) -> "
    "(Tensor, Tensor)",
)
def _add_norm(
    x: Tensor, block: Tensor, weight: Tensor, bias: Tensor, seed: Tensor | None, dropout: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    from longstride.ops.cuda import dropout_norm_kernels as kernels

    return kernels.forward(x.contiguous(), block.contiguous(), weight, bias, seed, dropout, epsilon)


@_add_norm.register_fake
def _(x: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    rows = x.numel() // x.shape[-1]
    return x.new_empty(x.shape), x.new_empty((rows, 2), dtype=torch.float32)


@torch.library.custom_op(
    "longstride::dropout_add_norm_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor x, Tensor block, Tensor weight, Tensor? seed, Tensor statistics, float dropout, "
    "bool wanted) -> (Tensor, Tensor, Tensor)",
)
def _add_norm_backward(
    grad: Tensor,
    x: Tensor,
    block: Tensor,
    weight: Tensor,
    seed: Tensor | None,
    statistics: Tensor,
    dropout: float,
    wanted: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    from longstride.ops.cuda import dropout_norm_kernels as kernels

    grad, x, block = grad.contiguous(), x.contiguous(), block.contiguous()
    return kernels.backward(grad, x, block, weight, seed, statistics, dropout, wanted)


@_add_norm_backward.register_fake
def _(
    grad: Tensor,
    x: Tensor,
    block: Tensor,
    weight: Tensor,
    seed: Tensor | None,
    statistics: Tensor,
    dropout: float,
    wanted: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    dblock = x.new_empty(0 if seed is None else x.shape)
    return x.new_empty(x.shape), dblock, statistics.new_empty((2, x.shape[-1]) if wanted else 0)


def _keep(ctx, inputs, output):  # type: ignore[no-untyped-def]
    x, block, weight, _, seed, ctx.dropout, _ = inputs
    ctx.save_for_backward(x, block, weight, seed, output[1])
    ctx.set_materialize_grads(False)


def _gradients(ctx, grad, _):  # type: ignore[no-untyped-def]
    if grad is None:
        return (None,) * 7
    wanted = any(ctx.needs_input_grad[2:4])
    weight, seed = ctx.saved_tensors[2:4]
    dx, dblock, parameters = _add_norm_backward(grad, *ctx.saved_tensors, ctx.dropout, wanted)
    dweight, dbias = parameters.to(weight.dtype).unbind(0) if wanted else (None, None)
    return dx, dx if seed is None else dblock, dweight, dbias, None, None, None


_add_norm.register_autograd(_gradients, setup_context=_keep)
