"""Which kernels of our own stand in for the tensor code between two model calls of a beam, and where.

They are for captured steps on a CUDA device, where launching many small kernels is what is left to save. Elsewhere the
tensor code itself runs. Kernels are imported when they are first needed.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.contract import Runner
from longstride.search.beam import BeamState, Search
from longstride.search.continuations import DEAD, SlotScores
from longstride.verification.kernels import permitted

WIDEST = 16
"""Hypotheses that the kernel for single words sorts the candidates of."""
WIDEST_OF_BUNDLES, LONGEST_BUNDLE = 8, 15
"""Hypotheses and words of a step: a continuation is a number of 64 bits, four for each word."""


def usable(runner: Runner, search: Search, indirect: bool) -> bool:
    """Whether to use them; `indirect`: caches stay as they were written."""
    fits = search.width <= WIDEST_OF_BUNDLES and search.step <= LONGEST_BUNDLE and not search.count_dropped
    one_word = search.step == 1 and indirect and search.width <= WIDEST
    return runner.fuses and (fits or one_word)


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
        """[sentences, width] of the finished hypotheses, which the kernels keep up"""

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

    def advance_bundles(self, scores: SlotScores, indirection: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """:meth:`longstride.search.beam.Beam.advance` for slots that are independent of each other, and what caches
        have to know of it, if they stay as they were written.

        -> the row that each hypothesis goes on from [sentences * width], and who took part [sentences]
        """
        from longstride.ops.cuda import beam_bundles

        search = self._search
        missing = search.width - scores.ids.shape[-1]
        ids, words = scores.ids, scores.words
        if missing:  # fewer words than hypotheses
            ids, words = F.pad(ids, (0, missing)), F.pad(words, (0, missing), value=DEAD)
        buffers = (self._state.buffers, self._counted, self.last, self.start, indirection, self.scores)
        found: tuple[Tensor, Tensor] = beam_bundles.advance_bundles(
            (ids, words, scores.end), self._divisors, *buffers, search.earliest, search.n_best
        )
        return found
