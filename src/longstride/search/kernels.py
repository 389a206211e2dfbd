"""Which kernels of our own stand in for the tensor code between two model calls of a beam, and where.

They are for captured steps on a CUDA device, where launching many small kernels is what is left to save. Elsewhere the
tensor code itself runs. Kernels are imported when they are first needed, after one quick comparison with it.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.contract import Limits, Runner, SpecialIds
from longstride.ops.kernels import TYPES, why_not_here
from longstride.search.beam import DEAD, Beam, BeamState, Search, SlotScores
from longstride.search.candidates import best_words
from longstride.search.length_penalty import LengthPenalty
from longstride.verification.acceptance import forbidden_ids
from longstride.verification.kernels import permitted, say_once

WIDEST = 16
"""Hypotheses that the kernel for single words sorts the candidates of."""
WIDEST_OF_BUNDLES, LONGEST_BUNDLE = 8, 15
"""Hypotheses and words of a step: a continuation is a number of 64 bits, four for each word."""
TOLERANCE = 1e-4
"""For log-probabilities: sums over the vocabulary are made in another order."""


def usable(runner: Runner, search: Search, indirect: bool) -> bool:
    """Whether to use them; `indirect`: caches stay as they were written."""
    fits = search.width <= WIDEST_OF_BUNDLES and search.step <= LONGEST_BUNDLE and not search.count_dropped
    one_word = search.step == 1 and indirect and search.width <= WIDEST
    if not (runner.records and runner.device.type == "cuda" and (fits or one_word)):
        return False
    against = why_not(runner.device, runner.dtype)
    if against and runner.dtype in TYPES:
        say_once(f"The runtime {runner.name} does without kernels of our own between steps of a beam: {against}.")
    return not against


class FusedBeam:
    """The kernels, and what they keep beside a state whose tensors stay where they are."""

    def __init__(self, state: BeamState, search: Search, forbidden: Tensor, vocabulary: int, scores: Tensor) -> None:
        sentences, width, columns = state.words.shape
        device = state.words.device
        self._state, self._search = state, search
        self._permitted = permitted(forbidden, vocabulary)
        self._no_words = self._permitted.clone().index_fill_(0, torch.tensor([search.eos], device=device), 0)
        # By length, looked up: one step more than there is room for, and the end.
        self._divisors = search.penalty(torch.arange(columns + search.step + 2, device=device))
        self._counted = torch.ones(sentences, width, dtype=torch.int64, device=device)
        self._anywhere = torch.zeros(sentences * width * search.step, dtype=torch.int64, device=device)
        self.last = torch.zeros(sentences, width, search.step, dtype=torch.int64, device=device)
        """[sentences, width, step] the newest words"""
        self.start = torch.zeros(sentences * width, dtype=torch.int64, device=device)
        """[sentences * width] where the next step begins; 0 where a search is done"""
        self.scores = scores
        """[sentences, width] of the finished hypotheses, which the kernel for single words keeps up"""

    @property
    def buffers(self) -> list[Tensor]:
        """What steps write."""
        return [self._counted, self.last, self.start, self.scores]

    def best_words(self, logits: Tensor) -> SlotScores:
        """What :func:`longstride.search.candidates.best_words` gives of logits [rows, step, vocabulary]"""
        from longstride.ops.cuda import beam as beam_kernels

        ids, gained, end = beam_kernels.candidates(
            logits.flatten(0, 1), self._no_words, self._anywhere, 0, self._search.width, self._search.eos
        )
        shape = (*self.last.shape, self._search.width)
        return SlotScores(ids.view(shape), gained.view(shape), end.view(shape[:3]))

    def advance_words(self, logits: Tensor | None, scores: SlotScores | None, indirection: Tensor) -> Tensor:
        """:meth:`longstride.search.beam.Beam.advance` for single words, and what caches have to know of it; by one
        model's logits [rows, 1, vocabulary] or by scores that were made otherwise. -> who took part [sentences]"""
        from longstride.ops.cuda import beam as beam_kernels

        search, (sentences, width, _) = self._search, self.last.shape
        if logits is not None:
            given = (logits[:, 0], self._permitted, self.start, search.earliest, 2 * width, search.eos)
            found = beam_kernels.candidates(*given)
        else:
            assert scores is not None
            early = (self.start < search.earliest).view(sentences, width)
            end = scores.end[..., 0]
            spare = (0, 2 * width - 1 - scores.ids.shape[-1])
            ids = F.pad(F.pad(scores.ids[:, :, 0], (0, 1), value=search.eos), spare)
            gained = torch.cat([scores.words[:, :, 0], end.masked_fill(early, DEAD)[..., None]], dim=-1)
            found = (ids, F.pad(gained, spare, value=DEAD), end.contiguous())
        shape = (sentences, width, 2 * width)
        lists = (found[0].view(shape), found[1].view(shape), found[2].view(shape[:2]))
        buffers = (self._state.buffers, self.last, self.start, indirection, self.scores)
        active: Tensor = beam_kernels.advance_words(lists, self._divisors, *buffers, search.n_best, search.eos)
        return active

    def advance_bundles(self, scores: SlotScores) -> tuple[Tensor, Tensor]:
        """:meth:`longstride.search.beam.Beam.advance` for slots that are independent of each other.

        -> the row that each hypothesis goes on from [sentences * width], and who took part [sentences]
        """
        from longstride.ops.cuda import beam as beam_kernels

        search = self._search
        missing = search.width - scores.ids.shape[-1]
        words, ids = F.pad(scores.words, (0, missing), value=DEAD), F.pad(scores.ids, (0, missing))
        buffers = (self._state.buffers, self._counted, self.last, self.start)
        found: tuple[Tensor, Tensor] = beam_kernels.advance_bundles(
            (ids, words, scores.end), self._divisors, *buffers, search.earliest, search.n_best
        )
        return found


# --- whether they may be used ----------------------------------------------------------------------------------------


@cache
def why_not(device: torch.device, dtype: torch.dtype) -> str:
    """What keeps the kernels from being used here, in a few words; empty where nothing does."""

    def tried() -> str:
        every = (Search(4, 1, LengthPenalty("gnmt", 0.6), step) for step in (1, 2))
        wrong = next((found for search in every if (found := self_test(search, Limits(), device, dtype))), "")
        return f"its {wrong} differ from PyTorch's own" if wrong else ""

    return why_not_here(device, dtype, tried)


@torch.inference_mode()
def self_test(
    search: Search,
    limits: Limits,
    device: torch.device,
    dtype: torch.dtype,
    seed: int = 0,
    sentences: int = 2,
    vocabulary: int = 40,
    longest: int = 8,
    steps: int = 6,
) -> str:
    """Random steps by the kernels and by tensor code: what differs, in a word or two; empty where nothing does.

    New sentences come into slots whose searches have ended. What nobody looks at again is not compared.
    """
    width, step, columns = search.width, search.step, longest + search.step
    generator = torch.Generator().manual_seed(seed)
    ours, theirs = (BeamState.empty(sentences, width, columns, device) for _ in range(2))
    forbidden = forbidden_ids(limits, device, SpecialIds(eos=search.eos))
    beam, fused = Beam(search, columns, device), FusedBeam(ours, search, forbidden, vocabulary, ours.finished.clone())
    no_words = torch.cat([forbidden, torch.tensor([search.eos], device=device)])
    first = width * torch.arange(sentences, device=device)[:, None]
    indirection = torch.zeros(sentences * width, columns + step, dtype=torch.int32, device=device)
    expected = indirection.clone()
    for _ in range(steps):
        empty = (theirs.done.cpu() & (torch.rand(sentences, generator=generator) < 0.7)).nonzero()[:, 0]
        most = torch.randint(max(1, limits.min_length), longest + 1, (len(empty),), generator=generator)
        for state in (ours, theirs):
            state.open(empty.to(device), most.to(device))
        start = torch.where(theirs.done, 0, theirs.length).repeat_interleave(width)
        if not torch.equal(fused.start, start):
            return "starts"
        logits = 2 * torch.randn(sentences * width, step, vocabulary, generator=generator)
        logits[..., search.eos] += 2  # so that searches end by themselves, too
        logits = logits.to(device, dtype)
        found = best_words(logits, no_words, width, search.eos)
        shape = (sentences, width, step, -1)
        scores = SlotScores(found[0].view(shape), found[1].view(shape), found[2].view(shape[:3]))
        active = ~theirs.done
        parents, last = beam.advance(theirs, scores)
        rows = (first + parents).view(-1)
        if step == 1:
            took_part = fused.advance_words(logits, None, indirection)
            expected = expected[rows].scatter(1, start[:, None], rows[:, None].int())
        else:
            from_rows, took_part = fused.advance_bundles(fused.best_words(logits))
        alive = theirs.live > DEAD
        seen = alive.view(-1, 1) & (torch.arange(indirection.shape[1], device=device) <= start[:, None])
        if wrong := differing(ours, theirs):
            return wrong
        if not torch.equal(took_part, active) or not torch.equal(fused.last[alive], last[alive]):
            return "newest words"
        if step > 1 and not torch.equal(from_rows[alive.view(-1)], rows[alive.view(-1)]):
            return "parents"
        if step == 1 and not torch.equal(indirection * seen, expected * seen):
            return "indirections"
        if step == 1 and not torch.allclose(fused.scores, beam.scores(theirs), rtol=0, atol=TOLERANCE):
            return "scores"
    return ""


def differing(ours: BeamState, theirs: BeamState) -> str:
    """Where two states differ, in a word or two; what nobody looks at again is not compared."""
    for name in ("length", "finished_length", "done"):
        if not torch.equal(getattr(ours, name), getattr(theirs, name)):
            return name.replace("_", " ")
    for name in ("live", "finished"):
        if not torch.allclose(getattr(ours, name), getattr(theirs, name), rtol=0, atol=TOLERANCE):
            return f"{name} scores"
    columns = torch.arange(ours.words.shape[2], device=ours.words.device)
    live = (columns < ours.length[:, None, None]) & (theirs.live > DEAD)[..., None]
    ended = (columns < ours.finished_length[..., None]) & (theirs.finished > DEAD)[..., None]
    if not torch.equal(ours.words * live, theirs.words * live):
        return "words"
    return "" if torch.equal(ours.finished_words * ended, theirs.finished_words * ended) else "finished words"
