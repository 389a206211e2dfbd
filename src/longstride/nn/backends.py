"""Which attention kernels PyTorch may choose from."""

from __future__ import annotations

import torch


def avoid_planned_attention() -> None:
    """Keep cuDNN's attention out of the choice, for this process.

    It builds a plan for every new shape, a tenth of a second each; with lengths as they come in text, the first two
    passes over a corpus ran at a tenth of the speed on an H200. The other kernels take any shape at once.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
