"""Which attention kernels PyTorch may choose from."""

from __future__ import annotations

import torch


def avoid_planned_attention() -> None:
    """Keep cuDNN's attention out of the choice, for this process.

    It builds a plan for every new shape. With it, the first 900 updates of every run on an H200, in which most shapes
    of a corpus come up for the first time, were slow; that the plans are to blame is likely, but no run without them
    has shown it yet.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
