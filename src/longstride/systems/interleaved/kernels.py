"""What surrounds the layers of a captured step in two kernels of our own, on a CUDA device where Triton is installed.

The tensor code that they are twins of is what runs everywhere else. Kernels are imported when they are first needed,
and compared with it once before that.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from longstride.contract import DEFAULT_IDS, EOS, Runner
from longstride.ops.kernels import TYPES, why_not_here
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.verification import kernels as of_verification
from longstride.verification.acceptance import LogitSummary

TOLERANCE = 1e-4
"""For sums of log-probabilities, whose order differs; all else is the same to the bit."""


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


def lay_out(
    ids: Tensor, start: Tensor, tokens: Tensor, scale: float, places: Tensor, own: bool, starts: Tensor | None
) -> tuple[Tensor, Tensor]:
    """What the first layer reads of ids [rows, step] from start [rows] on, [rows, step, width], and the slots [rows,
    step]; tokens [vocabulary, width], places [slots, width]

    With `own` the first step reads starts [step, width], or zeros where there are none, and no tokens.
    """
    from longstride.ops.cuda import interleaved_step as step_kernels

    found: tuple[Tensor, Tensor] = step_kernels.lay_out(ids, start, tokens, scale, places, own, starts)
    return found


def commit(
    reading: tuple[Tensor, Tensor, Tensor],
    anchors: Tensor,
    words: Tensor,
    state: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor],
    behind: int,
    count_dropped: bool,
    eos: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """See :meth:`..greedy.Rows.commit_fused`."""
    from longstride.ops.cuda import interleaved_step as step_kernels

    found: tuple[Tensor, Tensor, Tensor] = step_kernels.commit(
        reading, anchors, words, state, behind, count_dropped, eos
    )
    return found


# --- whether they may be used ----------------------------------------------------------------------------------------


@cache
def why_not(device: torch.device, dtype: torch.dtype) -> str:
    """What keeps them from being used here, in a few words; empty where nothing does."""

    def tried() -> str:
        wrong = self_test(InterleavingOptions(48, 2, 2, start="learned"), device, dtype)
        return f"its {wrong} differ from PyTorch's own" if wrong else ""

    return why_not_here(device, dtype, tried)


@torch.inference_mode()
def self_test(
    options: InterleavingOptions, device: torch.device, dtype: torch.dtype, count_dropped: bool = False, seed: int = 0
) -> str:
    """Random steps by the kernels and by the tensor code: what differs, in a word; empty where nothing does."""
    from longstride.systems.interleaved.greedy import Rows
    from longstride.systems.interleaved.model import Interleaving

    generator, count, words = torch.Generator().manual_seed(seed), 5, 30
    step, width, shape = options.step, options.width, (count, options.step)

    def integers(low: int, high: int, *size: int) -> Tensor:
        return torch.randint(low, high, size, generator=generator).to(device)

    interleaving = Interleaving(options).to(device, dtype)
    tokens, places = (torch.randn(n, width, generator=generator).to(device, dtype) for n in (words, 4 * step))
    ids, start, scale = integers(0, words, *shape), step * torch.tensor([0, 2, 0, 3, 1], device=device), width**0.5
    found, at = lay_out(ids, start, tokens, scale, places, options.start != "symbol", interleaving.starts)
    slots = start[:, None] + torch.arange(step, device=device)
    if not torch.equal(at, slots):
        return "slots"
    if not torch.equal(found, interleaving.begin(tokens[ids] * scale, slots) + places[slots]):
        return "inputs"

    ours, theirs = (Rows(count, 10 * step, options, DEFAULT_IDS, device) for _ in range(2))
    filled, done = step * integers(0, 2, count), integers(0, 4, count) == 0
    for rows in (ours, theirs):
        for buffer, value in ((rows.filled, filled), (rows.length, filled), (rows.done, done)):
            buffer.copy_(value)
        rows.start.copy_(torch.where(done, 0, filled))
    for _ in range(3):
        top = torch.where(integers(0, 2 * step, *shape) == 0, EOS, integers(4, words, *shape))
        reading = LogitSummary(top, *(torch.randn(shape, generator=generator).to(device) for _ in range(2)))
        mine, right = ours.commit_fused(reading, count_dropped), theirs.commit(reading, theirs.slots, count_dropped)
        kept = torch.arange(ours.words.shape[1], device=device) < theirs.filled[:, None]
        pairs = {
            name: (getattr(ours, name), getattr(theirs, name)) for name in ("filled", "length", "done", "start", "ids")
        }
        pairs |= {name: (getattr(mine, name), getattr(right, name)) for name in ("active", "written")}
        pairs["positions"] = (mine.position * right.written, right.position * right.written)
        pairs["words"] = (ours.words * kept, theirs.words * kept)
        for name, (one, other) in pairs.items():
            if not torch.equal(one, other):
                return name
        if float((ours.log_probability - theirs.log_probability).abs().max()) > TOLERANCE:
            return "log-probabilities"
    return ""
