"""What surrounds the layers of a captured step in two kernels of our own, on a CUDA device where Triton is installed.

The tensor code that they are twins of is what runs everywhere else. Kernels are imported when they are first needed,
and compared with it before that (`kernel_check`).
"""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import Tensor

from longstride.contract import EOS, Runner
from longstride.nn.fused import TYPES, why_not_here
from longstride.verification import kernels as of_verification


def usable(runner: Runner) -> bool:
    """Whether to use them: where steps are captured, and choices are read by a kernel of our own too."""
    if not of_verification.usable(runner):
        return False
    against = why_not(runner.device, runner.dtype)
    if against and runner.dtype in TYPES:
        _say_once(f"The runtime {runner.name} does without kernels of our own around interleaved steps: {against}.")
    return not against


@cache
def _say_once(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)


@cache
def why_not(device: torch.device, dtype: torch.dtype) -> str:
    """What keeps them from being used here, in a few words; empty where nothing does."""

    def tried() -> str:
        from longstride.systems.interleaved.kernel_check import differing

        wrong = differing(device, dtype)
        return f"its {wrong} differ from PyTorch's own" if wrong else ""

    return why_not_here(device, dtype, tried)


def lay_out(
    ids: Tensor, start: Tensor, tokens: Tensor, scale: float, places: Tensor, own: bool, starts: Tensor | None
) -> tuple[Tensor, Tensor]:
    """What the first layer reads of ids [rows, step] from start [rows] on, [rows, step, width], and the slots [rows,
    step]; tokens [vocabulary, width], places [slots, width]

    With `own` the first step reads starts [step, width], or zeros where there are none, and no tokens.
    """
    from longstride.systems.interleaved import step_kernels

    found: tuple[Tensor, Tensor] = step_kernels.lay_out(ids, start, tokens, scale, places, own, starts)
    return found


def commit(
    reading: tuple[Tensor, Tensor, Tensor],
    anchors: Tensor,
    words: Tensor,
    state: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor],
    behind: int,
    count_dropped: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """See :meth:`..rows.Rows.commit_fused`."""
    from longstride.systems.interleaved import step_kernels

    found: tuple[Tensor, Tensor, Tensor] = step_kernels.commit(
        reading, anchors, words, state, behind, count_dropped, EOS
    )
    return found
