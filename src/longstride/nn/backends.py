"""Which attention kernels may be chosen from: PyTorch's, and our own for short sequences."""

from __future__ import annotations

import torch

_own = True


def avoid_planned_attention() -> None:
    """Keep cuDNN's attention out of the choice, for this process.

    It builds a plan for every new shape. With it, the first 900 updates of every run on an H200, in which most shapes
    of a corpus come up for the first time, were slow; that the plans are to blame is likely, but no run without them
    has shown it yet.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


def allow_own_attention(allowed: bool) -> None:
    """Say whether training on CUDA may use our own kernels for short sequences, for this process (at first: yes)."""
    global _own
    _own = allowed


def own_attention_allowed() -> bool:
    """What `allow_own_attention` said last."""
    return _own
