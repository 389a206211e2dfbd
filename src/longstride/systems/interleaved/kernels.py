"""What surrounds the layers of a captured step in three kernels of our own, on a CUDA device where Triton is installed.

The tensor code that they are twins of is what runs everywhere else. Kernels are imported when they are first needed,
and compared with it before that (`kernel_check`, `beam_check`).
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from longstride.contract import EOS, PAD, Runner
from longstride.ops.kernels import TYPES, why_not_here
from longstride.search.length_penalty import LengthPenalty
from longstride.search.multiword import MultiWordTable, SlotScores
from longstride.verification import kernels as of_verification

WIDEST, LONGEST = 8, 15
"""Hypotheses of a sentence and words of a step that a beam's kernel is for: a continuation is a number of 64 bits."""


def usable(runner: Runner) -> bool:
    """Whether to use them: where steps are captured, and choices are read by a kernel of our own too."""
    if not of_verification.usable(runner):
        return False
    against = why_not(runner.device, runner.dtype)
    if against and runner.dtype in TYPES:
        of_verification.say_once(
            f"The runtime {runner.name} does without kernels of our own around interleaved steps: {against}."
        )
    return not against


@cache
def why_not(device: torch.device, dtype: torch.dtype) -> str:
    """What keeps them from being used here, in a few words; empty where nothing does."""

    def tried() -> str:
        from longstride.systems.interleaved.beam_check import differing as beams_differ
        from longstride.systems.interleaved.kernel_check import differing

        wrong = differing(device, dtype) or beams_differ(device)
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


def beam_fits(width: int, step: int) -> bool:
    """Whether a step of a beam is small enough for its kernel."""
    return width <= WIDEST and step <= LONGEST


def divisors_of(penalty: LengthPenalty, columns: int, device: torch.device) -> Tensor:
    """[lengths] of scores, by any length that there is room for, EOS counted"""
    return penalty(torch.arange(columns + 3, device=device))


def advance(
    slots: SlotScores,
    divisors: Tensor,
    table: MultiWordTable,
    last: Tensor,
    start: Tensor,
    earliest: int,
    n_best: int,
) -> tuple[Tensor, Tensor]:
    """:func:`longstride.search.multiword.advance` in one kernel: the table, last [sentences, width, step] and start
    [sentences * width] are written

    -> the row that each goes on from [sentences * width], and who took part [sentences]
    """
    from longstride.systems.interleaved import beam_kernels

    scores = (slots.ids, slots.words, slots.end)
    found: tuple[Tensor, Tensor] = beam_kernels.advance(
        scores, divisors, table.buffers, last, start, earliest, n_best, PAD
    )
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
