"""Random steps of a beam by our own kernel and by the tensor code it is a twin of: where they differ, if anywhere."""

from __future__ import annotations

import torch

from longstride.contract import EOS, NEVER_GENERATED
from longstride.search import multiword
from longstride.search.beam import DEAD
from longstride.search.length_penalty import LengthPenalty
from longstride.systems.interleaved.kernels import advance, divisors_of
from longstride.systems.interleaved.linked_scores import best_words

SETTINGS = ((4, 2, 1), (3, 4, 2))
"""Widths, words of a step and how many outputs are wanted, of the check before use."""
SENTENCES, ROOM, VOCABULARY, STEPS = 3, 12, 24, 6


@torch.inference_mode()
def differing(device: torch.device) -> str:
    """What differs for any of the settings, in a word or two; empty where nothing does."""
    found = (differs(*setting, earliest=seed, device=device, seed=seed) for seed, setting in enumerate(SETTINGS))
    return next((wrong for wrong in found if wrong), "")


def differs(width: int, step: int, n_best: int, earliest: int, device: torch.device, seed: int) -> str:
    """What differs for one setting; the last sentence is idle."""
    generator = torch.Generator().manual_seed(seed)
    penalty, columns = LengthPenalty("gnmt", 0.6), ROOM + step
    longest = torch.randint(1, ROOM + 1, (SENTENCES,), generator=generator).to(device)
    ours, theirs = (multiword.MultiWordTable.empty(SENTENCES, width, columns, device) for _ in range(2))
    for table in (ours, theirs):
        table.open(torch.arange(SENTENCES - 1, device=device), longest[:-1])
    last = torch.zeros(SENTENCES, width, step, dtype=torch.int64, device=device)
    start = torch.zeros(SENTENCES * width, dtype=torch.int64, device=device)
    divisors = divisors_of(penalty, columns, device)
    no_words = torch.tensor([*NEVER_GENERATED, EOS], device=device)
    for _ in range(STEPS):
        logits = 2 * torch.randn(SENTENCES, width, step, VOCABULARY, generator=generator).to(device)
        slots = best_words(logits, no_words, width)
        parents, expected = multiword.advance(theirs, slots, penalty, n_best, earliest, count_dropped=False)
        rows, _ = advance(slots, divisors, ours, last, start, earliest, n_best)
        wrong = _unequal(ours, theirs)
        alive = theirs.live > DEAD
        origin = parents + width * torch.arange(SENTENCES, device=device)[:, None]
        if wrong or not torch.equal(rows.view_as(origin)[alive], origin[alive]):
            return wrong or "parents"
        if not torch.equal(last, expected):
            return "last words"
        if not torch.equal(
            start.view_as(origin), torch.where(theirs.done, 0, theirs.length)[:, None].expand_as(origin)
        ):
            return "starts"
    return ""


def _unequal(ours: multiword.MultiWordTable, theirs: multiword.MultiWordTable) -> str:
    for name in ("live", "length", "finished", "finished_length", "counted", "done"):
        if not torch.equal(getattr(ours, name), getattr(theirs, name)):
            return name.replace("_", " ")
    columns = torch.arange(ours.words.shape[2], device=ours.words.device)
    going = (columns < ours.length[:, None, None]) & (ours.live > DEAD)[..., None]
    ended = (columns < ours.finished_length[..., None]) & (ours.finished > DEAD)[..., None]
    if not torch.equal(ours.words * going, theirs.words * going):
        return "words"
    return "" if torch.equal(ours.finished_words * ended, theirs.finished_words * ended) else "finished words"
