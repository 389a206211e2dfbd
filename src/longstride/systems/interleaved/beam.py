"""Beam search over bundles of words: the shared beam, told of an interleaved model's steps.

With a link each slot is scored given every partial continuation. The first h slots have no neighbour in their step and
are scored at once, as they are without links. Any other is scored when its turn comes, for each partial continuation
that is left then: `width` times the logits of one slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from longstride.contract import Limits, Runner
from longstride.ops import aligned
from longstride.search.beam import Search
from longstride.search.beam_table import BeamTable, reads_indirection
from longstride.search.candidates import best_words
from longstride.search.continuations import Array, Choices, SlotScores, StepScores
from longstride.search.table import SearchModel
from longstride.systems.interleaved.model import InterleavedModel
from longstride.systems.interleaved.programs import extend, tie


def beam_table(
    model: InterleavedModel, runner: Runner, search: Search, limits: Limits, capacity: int, longest_source: int
) -> BeamTable:
    """For `capacity` sentences."""
    columns = limits.longest_output(longest_source) + search.step  # the last step may begin where only EOS is left
    layout = model.layout(aligned(columns), runner.fuses)
    link, h = model.interleaving.link, model.options.h
    scores = None if link is None else partial(LinkedScores.of, partial(runner.call, tie(link)), h, search.eos)
    # No kernel reads pasts that lie in other rows where slots see less than all that is before their step.
    indirect = layout.rule != "other" and reads_indirection(runner, [model.model])
    call = SearchModel(model.model, extend(model), (layout,))
    return BeamTable([call], runner, search, limits, capacity, longest_source, columns, scores, indirect)


@dataclass(frozen=True)
class LinkedScores:
    """A step's slots, all but the first h depending on the word h slots before them: some `StepScores`."""

    first: SlotScores
    """the first h slots"""
    h: int
    eos: int
    logits: Tensor
    """[sentences, width, step, vocabulary] of every slot by itself"""
    factors: Tensor
    """[sentences, width, step, rank] what the link has to know of the states"""
    no_words: Tensor
    """[n] ids that are no words: forbidden ones and EOS"""
    tie: Callable[[Tensor, Tensor, Tensor], Tensor]
    """see :func:`..programs.tie`"""
    arrays: bool
    """hypotheses are arrays of NumPy's"""
    limits: tuple[Array, Array | None] | None = None
    """see :meth:`within`"""

    @staticmethod
    def of(
        tie: Callable[[Tensor, Tensor, Tensor], Tensor],
        h: int,
        eos: int,
        logits: Tensor,
        factors: Any,
        no_words: Tensor,
        arrays: bool,
    ) -> StepScores:
        """Of a model call."""
        found = best_words(logits[:, :, :h], no_words, logits.shape[1], eos)
        first = SlotScores(*(one.numpy() if arrays else one for one in found))
        factors = factors.view(*logits.shape[:3], -1)
        return LinkedScores(first, h, eos, logits, factors, no_words, tie, arrays)

    def within(self, must_end: Array, too_early: Array | None) -> LinkedScores:
        """See :meth:`StepScores.within`."""
        h = self.h
        first = self.first.within(must_end[:, :h], None if too_early is None else too_early[:, :h])
        return replace(self, first=first, limits=(must_end, too_early))

    def at(self, slot: int, chosen: Array) -> Choices:
        """See :meth:`StepScores.at`."""
        h, here = self.h, slice(slot, slot + 1)
        if slot < h:
            return self.first.at(slot, chosen)
        alone, factors = (tensor[:, :, here].flatten(0, 1) for tensor in (self.logits, self.factors))
        previous = chosen[..., slot - h]
        previous = torch.from_numpy(previous) if self.arrays else previous
        given = self.tie(alone, factors, previous.flatten(0, 1)).view(*previous.shape, -1)
        found = best_words(given, self.no_words, previous.shape[1], self.eos)
        scores = SlotScores(*(one.numpy() if self.arrays else one for one in found))
        if self.limits is not None:
            must_end, too_early = self.limits
            scores = scores.within(must_end[:, here], None if too_early is None else too_early[:, here])
        return Choices(scores.ids, scores.words, scores.end)
