"""Which kernels training may choose from: PyTorch's, and our own for attention over short sequences and for norms."""

from __future__ import annotations

from importlib.util import find_spec

import torch

_own = False
_possible = False
_norms = False


def avoid_planned_attention() -> None:
    """Keep cuDNN's attention out of the choice, for this process.

    It builds a plan for every new shape, 0.3 s each on an H200, and an epoch has some 500 shapes: a run's first pass
    over its data lost minutes to it. Without it no shape costs anything, but PyTorch's other kernels are slower.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


def allow_own_attention(allowed: bool) -> None:
    """Say whether training on CUDA may use our own kernels for short sequences, for this process (at first: no)."""
    global _own, _possible
    _own = allowed
    _possible = allowed and _has_what_own_kernels_need()


def own_attention_allowed() -> bool:
    """What `allow_own_attention` said last."""
    return _own


def own_attention_possible() -> bool:
    """Whether they were allowed where Triton and a device that they are written for were found."""
    return _possible


def allow_own_norms(allowed: bool) -> None:
    """Say whether training on CUDA may use our own kernels for dropout, residual sums and norms, for this process (at
    first: no)."""
    global _norms
    _norms = allowed and _has_what_own_kernels_need()


def own_norms_possible() -> bool:
    """Whether they were allowed where Triton and a device that they are written for were found."""
    return _norms


def _has_what_own_kernels_need() -> bool:
    if find_spec("triton") is None or torch.version.cuda is None or not torch.cuda.is_available():
        return False
    return torch.cuda.get_device_capability() >= (8, 0)
