"""Some random steps of a beam by our own kernels and by the tensor code they are twins of: where they differ, if
anywhere. What nobody looks at again, dead hypotheses and columns beyond a length, is not compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from longstride.contract import EOS, Limits
from longstride.search import beam
from longstride.search.length_penalty import LengthPenalty
from longstride.systems.autoregressive import beam_reading
from longstride.systems.autoregressive.beam_fused import OwnSearch
from longstride.verification.reading import forbidden_ids

TOLERANCE = 1e-4
"""For what is a sum over the vocabulary, whose order differs; all else is the same to the bit."""


PENALTY = LengthPenalty("gnmt", 0.6)


@dataclass(frozen=True)
class Sizes:
    """Of a random search."""

    slots: int = 3
    width: int = 5
    vocabulary: int = 300
    longest: int = 9
    n_best: int = 1
    min_length: int = 1
    banned: tuple[int, ...] = ()
    steps: int = 11
    penalty: LengthPenalty = PENALTY


SETTINGS = (Sizes(), Sizes(2, longest=70, steps=72), Sizes(4, 4, n_best=2, min_length=0))
"""A search as long as more than one tile of columns; widths that are powers of two and not"""


@torch.inference_mode()
def differing(device: torch.device, dtype: torch.dtype) -> str:
    """What differs for any of the settings, in a word or two; empty where nothing does."""
    found = (differs(sizes, device, dtype, seed) for seed, sizes in enumerate(SETTINGS))
    return next((wrong for wrong in found if wrong), "")


def differs(sizes: Sizes, device: torch.device, dtype: torch.dtype, seed: int) -> str:
    """What differs in one search, step by step; new sentences come into slots whose searches have ended."""
    slots, width = sizes.slots, sizes.width
    generator = torch.Generator().manual_seed(seed)
    limits = Limits(min_length=sizes.min_length, banned=sizes.banned, max_length=max(1, sizes.longest))
    forbidden = forbidden_ids(limits, device)
    theirs, ours = (beam.BeamTable.empty(slots, width, sizes.longest + 1, device) for _ in range(2))
    scores = torch.zeros(slots, width, dtype=torch.float64, device=device)
    own = OwnSearch(ours, scores, sizes.penalty, sizes.n_best, limits, sizes.vocabulary)
    indirection = torch.zeros(slots * width, sizes.longest + 6, dtype=torch.int32, device=device)
    expected_indirection, last = indirection.clone(), torch.zeros(slots, width, dtype=torch.int64, device=device)
    first = torch.arange(slots, device=device)[:, None] * width
    for _ in range(sizes.steps):
        empty = (theirs.done.cpu() & (torch.rand(slots, generator=generator) < 0.7)).nonzero()[:, 0].to(device)
        longest = torch.randint(max(1, sizes.min_length), sizes.longest + 1, (len(empty),), generator=generator)
        for table in (theirs, ours):
            table.open(empty, longest.to(device))
        start = torch.where(theirs.done, 0, theirs.length).repeat_interleave(width)
        if not torch.equal(own.start, start):
            return "starts"
        logits = torch.randn(slots * width, sizes.vocabulary, generator=generator) * 2
        logits[:, EOS] += 3  # so that searches end by themselves, too
        logits = logits.to(device, dtype)
        candidates = beam_reading.candidates([logits], start, forbidden, sizes.min_length, (slots, width))
        wrong = _unlike(own.candidates(logits), candidates, logits)
        if wrong:
            return wrong
        active, before = ~theirs.done, replace(theirs)
        parents, newest = beam.advance(theirs, candidates, sizes.penalty, sizes.n_best)
        rows = (first + parents).view(-1)
        expected_indirection = expected_indirection[rows].scatter(1, start[:, None], rows[:, None].int())
        ids, written = beam_reading.told(theirs, sizes.penalty, active)
        took_part, told, counts = own.advance(ours, candidates, last, indirection)
        if not (torch.equal(took_part, active) and torch.equal(counts, written)):
            return "flags"
        if not torch.equal(told * written, ids * written):
            return "outputs"
        wrong = _unequal(ours, theirs, before)
        if wrong:
            return wrong
        alive = theirs.live > beam.DEAD
        if not torch.equal(last[alive], newest[alive]):
            return "newest tokens"
        past = torch.arange(indirection.shape[1], device=device) <= start[:, None]
        seen = past & alive.view(-1)[:, None]
        if not torch.equal(indirection * seen, expected_indirection * seen):
            return "indirection"
        expected = beam.final_scores(theirs, sizes.penalty)
        if not torch.equal(own.scores, expected):
            return "scores"
    return ""


def _unlike(found: beam.Candidates, expected: beam.Candidates, logits: Tensor) -> str:
    """Among equal logits any may be chosen, so that these are compared in place of ids."""
    possible = expected.log_probabilities > beam.DEAD
    if not torch.equal(found.log_probabilities > beam.DEAD, possible):
        return "candidates"
    every = logits.view(*found.ids.shape[:2], -1)
    ours, theirs = (every.gather(2, one.ids.clamp(max=logits.shape[1] - 1)) for one in (found, expected))
    spread = found.ids.sort(dim=2).values.diff(dim=2) if bool(possible.all()) else torch.ones(1)
    if not torch.equal(ours[possible], theirs[possible]) or bool((spread == 0).any()):
        return "candidates"
    apart = (found.log_probabilities - expected.log_probabilities)[possible].abs()
    close = float((found.end - expected.end).abs().max()) <= TOLERANCE and bool((apart <= TOLERANCE).all())
    return "" if close else "log-probabilities"


def _unequal(ours: beam.BeamTable, theirs: beam.BeamTable, before: beam.BeamTable) -> str:
    for name in ("live", "length", "finished", "finished_length", "longest", "done"):
        if not torch.equal(getattr(ours, name), getattr(theirs, name)):
            return name.replace("_", " ")
    columns = torch.arange(ours.tokens.shape[2], device=ours.tokens.device)
    alive = (columns <= before.length[:, None, None]) & (theirs.live > beam.DEAD)[..., None]
    ended = (columns < theirs.finished_length[..., None]) & (theirs.finished > beam.DEAD)[..., None]
    if not torch.equal(ours.tokens * alive, theirs.tokens * alive):
        return "tokens"
    return "" if torch.equal(ours.finished_tokens * ended, theirs.finished_tokens * ended) else "finished tokens"
