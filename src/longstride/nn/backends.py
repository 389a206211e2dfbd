"""Which attention kernels may be chosen from: PyTorch's, and our own for short sequences."""

from __future__ import annotations

import torch

_own = False


def avoid_planned_attention() -> None:
    """Keep cuDNN's attention out of the choice, for this process.

    It builds a plan for every new shape, 0.3 s each on an H200, and an epoch has some 500 shapes: a run's first pass
    over its data lost minutes to it. Without it no shape costs anything, but PyTorch's other kernels are slower.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


def allow_own_attention(allowed: bool) -> None:
    """Say whether training on CUDA may use our own kernels for short sequences, for this process (at first: no)."""
    global _own
    _own = allowed


def own_attention_allowed() -> bool:
    """What `allow_own_attention` said last."""
    return _own
