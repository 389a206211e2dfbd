"""One random step by our own kernels and by the tensor code they are twins of: where they differ, if anywhere."""

from __future__ import annotations

import torch
from torch import Tensor

from longstride.contract import EOS
from longstride.systems.interleaved.kernels import lay_out
from longstride.systems.interleaved.model import Interleaving
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.systems.interleaved.rows import Rows
from longstride.verification.acceptance import Reading

TOLERANCE = 1e-4
"""For sums of log-probabilities, whose order differs; all else is the same to the bit."""
VARIANTS = (("symbol", 2, 1), ("zeros", 1, 3), ("learned", 4, 2))
"""What the first step reads, directions and words: these take every way through the kernels."""
ROWS, WIDTH, WORDS, ROOM = 5, 48, 30, 40


@torch.inference_mode()
def differing(device: torch.device, dtype: torch.dtype) -> str:
    """What differs for any of the variants, in a word or two; empty where nothing does."""
    for seed, (start, h, c) in enumerate(VARIANTS):
        options = InterleavingOptions(WIDTH, h, c, start=start)  # type: ignore[arg-type]
        wrong = inputs_differ(options, device, dtype, seed)
        for dropped in (False, True):
            wrong = wrong or commits_differ(options, dropped, device, seed)
        if wrong:
            return wrong
    return ""


def inputs_differ(options: InterleavingOptions, device: torch.device, dtype: torch.dtype, seed: int) -> str:
    """What differs of what the first layer reads."""
    generator = torch.Generator().manual_seed(seed)
    step, width, scale = options.step, options.width, options.width**0.5
    interleaving = Interleaving(options).to(device, dtype)
    tokens, places = (torch.randn(n, width, generator=generator).to(device, dtype) for n in (WORDS, 4 * step))
    ids = torch.randint(0, WORDS, (ROWS, step), generator=generator).to(device)
    start = step * torch.tensor([0, 2, 0, 3, 1], device=device)
    found, at = lay_out(ids, start, tokens, scale, places, options.start != "symbol", interleaving.starts)
    slots = start[:, None] + torch.arange(step, device=device)
    if not torch.equal(at, slots):
        return "slots"
    expected = interleaving.begin(tokens[ids] * scale, slots) + places[slots]
    return "" if torch.equal(found, expected) else "inputs"


def commits_differ(options: InterleavingOptions, count_dropped: bool, device: torch.device, seed: int) -> str:
    """What differs of what is committed."""
    generator = torch.Generator().manual_seed(seed)
    step, shape = options.step, (ROWS, options.step)

    def integers(low: int, high: int, *size: int) -> Tensor:
        return torch.randint(low, high, size, generator=generator).to(device)

    filled, done = step * integers(0, 2, ROWS), integers(0, 4, ROWS) == 0
    every = [Rows(ROWS, ROOM, options, device) for _ in range(2)]
    for rows in every:
        rows.filled.copy_(filled)
        rows.length.copy_(filled)
        rows.done.copy_(done)
        rows.start.copy_(torch.where(done, 0, filled))
    for _ in range(3):
        top = torch.where(integers(0, 2 * step, *shape) == 0, EOS, integers(4, WORDS, *shape))
        logits = [torch.randn(shape, generator=generator).to(device) for _ in range(2)]
        reading = Reading(top, logits[0], logits[1])
        ours, theirs = every
        found, expected = ours.commit_fused(reading, count_dropped), theirs.commit(reading, theirs.slots, count_dropped)
        wrong = _unequal(ours, theirs)
        at = expected.written
        for name in ("active", "written"):
            if not torch.equal(getattr(found, name), getattr(expected, name)):
                return name
        if wrong or not torch.equal(found.position[at], expected.position[at]):
            return wrong or "positions"
    return ""


def _unequal(ours: Rows, theirs: Rows) -> str:
    for name in ("filled", "length", "done"):
        if not torch.equal(getattr(ours, name), getattr(theirs, name)):
            return name
    columns = torch.arange(ours.words.shape[1], device=ours.words.device)
    kept = columns < ours.filled[:, None]
    if not torch.equal(ours.words * kept, theirs.words * kept):
        return "words"
    if not torch.equal(ours.start, torch.where(theirs.done, 0, theirs.filled)):
        return "starts"
    if not torch.equal(ours.ids, theirs.ids):
        return "ids"
    close = (ours.log_probability - theirs.log_probability).abs().max() <= TOLERANCE
    return "" if close else "log-probabilities"
