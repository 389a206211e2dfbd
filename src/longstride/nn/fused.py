"""Fewer kernels for inference on a CUDA device: residual sums and their norms at once, where Triton is installed.

Off until somebody asks for it with :func:`fuse`. Kernels are imported when they are first needed.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor, nn

TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}
"""How far results may be from PyTorch's own, as a share of them or, below one, in all: a few last bits"""


def add_norm(x: Tensor, added: Tensor, norm: nn.LayerNorm) -> Tensor:
    """norm(x + added), [..., width]"""
    from longstride.nn.fused_kernels import add_norm as kernel

    found: Tensor = kernel(x.contiguous(), added.contiguous(), norm.weight, norm.bias, norm.eps)
    return found


def why_not(device: torch.device, dtype: torch.dtype) -> str:
    """What keeps residual blocks from being fused here, in a few words; empty where nothing does."""
    if device.type != "cuda":
        return f"it expects a CUDA device, found {device}"
    if dtype not in TOLERANCE:
        return f"it expects fp32, fp16 or bf16, found {dtype}"
    if find_spec("triton") is None:
        return "it expects the package triton, found none"
    try:
        worst = _worst(device, dtype)
    except Exception as error:  # a compiler that fails in whatever way of its own
        return (str(error) or type(error).__name__).splitlines()[0]
    if not worst <= TOLERANCE[dtype]:
        return f"its results are {worst:.1g} away from PyTorch's own"
    return ""


@torch.inference_mode()
def _worst(device: torch.device, dtype: torch.dtype) -> float:
    """The largest such difference over random rows of several widths."""
    generator = torch.Generator().manual_seed(0)
    worst = 0.0
    for width in (80, 256, 512, 1024):
        x, added = (torch.randn(7, width, generator=generator).to(device, dtype) for _ in range(2))
        norm = nn.LayerNorm(width)
        norm.weight.copy_(torch.randn(width, generator=generator))
        norm.bias.copy_(torch.randn(width, generator=generator))
        norm = norm.to(device, dtype)
        found, expected = add_norm(x, added, norm).float(), norm(x + added).float()
        worst = max(worst, float(((found - expected).abs() / expected.abs().clamp(min=1)).max()))
    return worst
