"""What a beam is told of a step whose neighbouring words are linked: each slot given every partial continuation.

The first h slots have no neighbour in their step and are scored at once, as they are without links. Any other is scored
when its turn comes, for each partial continuation that is left then: `width` times the logits of one slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from longstride.contract import EOS
from longstride.search.beam import DEAD
from longstride.search.multiword import Choices, SlotScores


def best_words(logits: Tensor, no_words: Tensor, width: int) -> SlotScores:
    """logits [sentences, width, slots, vocabulary] -> the best words of each slot, none of the ids `no_words` [n], EOS
    among these"""
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    scores = logits.log_softmax(dim=-1, dtype=wide)
    end = scores[..., EOS].to(torch.float64, copy=True)  # before EOS is taken out of the words
    best, picked = scores.index_fill_(-1, no_words, DEAD).topk(min(width, scores.shape[-1]), dim=-1)
    return SlotScores(picked, best.double(), end)


@dataclass(frozen=True)
class LinkedScores:
    """A step's slots, all but the first h depending on the word h slots before them: some `multiword.StepScores`."""

    first: SlotScores
    """the first h slots"""
    logits: Tensor
    """[sentences, width, step, vocabulary] of every slot by itself"""
    factors: Tensor
    """[sentences, width, step, rank] what the link has to know of the states"""
    no_words: Tensor
    """[n] ids that are no words: forbidden ones and EOS"""
    tie: Callable[[Tensor, Tensor, Tensor], Tensor]
    """see :func:`..programs.tie`"""
    must_end: Tensor | None = None
    """[sentences, step] bool: see :meth:`within`"""
    too_early: Tensor | None = None
    """likewise"""

    @property
    def step(self) -> int:
        """How many slots there are."""
        return self.logits.shape[2]

    def within(self, must_end: Tensor, too_early: Tensor) -> LinkedScores:
        """See :meth:`multiword.StepScores.within`."""
        h = self.first.step
        first = self.first.within(must_end[:, :h], too_early[:, :h])
        return replace(self, first=first, must_end=must_end, too_early=too_early)

    def at(self, slot: int, chosen: Tensor) -> Choices:
        """See :meth:`multiword.StepScores.at`."""
        h, here = self.first.step, slice(slot, slot + 1)
        if slot < h:
            return self.first.at(slot, chosen)
        alone, factors = (tensor[:, :, here].flatten(0, 1) for tensor in (self.logits, self.factors))
        previous = chosen[..., slot - h]
        given = self.tie(alone, factors, previous.flatten(0, 1)).view(*previous.shape, -1)
        found = best_words(given, self.no_words, previous.shape[1])
        if self.must_end is not None and self.too_early is not None:
            found = found.within(self.must_end[:, here], self.too_early[:, here])
        return Choices(found.ids, found.words, found.end)
