"""The candidate lattice: which words may stand at which place of the output. Knows neither edges nor lengths.

Three constructions make one (Figure 1): counts over alignments (`tables.Tables`), one reduced vocabulary for the whole
sentence (`tables.SharedVocabulary`), and any model with logits per place (`ScoredCandidates`). All of them propose
words alone: the end of the sentence and the padding after it are put in by the length window.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.contract import DEFAULT_IDS, Program, Runner, SpecialIds

MAX_SCORES = 1 << 27
"""So many scores of a `ScoredCandidates` exist at once."""


def not_words(special: SpecialIds) -> tuple[int, ...]:
    """Ids that are never candidates, in order."""
    every = {*special.never_generated, special.pad, special.start, special.eos, special.mask}
    return tuple(sorted(each for each in every if each is not None))


def fallback_word(special: SpecialIds, vocabulary: int, banned: Collection[int]) -> int:
    """What stands where nothing else may: unk, or where it is banned or there is none the first word that is not."""
    unk = () if special.unk is None else (special.unk,)
    never = {*not_words(special)}
    words: list[int] = [*unk, *(word for word in range(vocabulary) if word not in never)]
    return next((word for word in words if word not in banned), words[0])


PlaceScores = Callable[[Tensor, Tensor, int], Tensor]
"""(source [rows, longest], lengths [rows], columns) -> logits [rows, columns, vocabulary]"""


@dataclass(frozen=True)
class Candidates:
    """The words that may stand in each column, best first."""

    ids: Tensor
    """[rows, columns, K] int64, distinct within a column, PAD where there are fewer than K"""
    log_scores: Tensor
    """[rows, columns, K] log P(y | x, t), -inf where there are fewer than K"""
    rest: Tensor | None = None
    """[rows, columns, more] what was proposed too and not kept; None: nothing was"""


class CandidateSource(Protocol):
    """Whatever proposes words for a sentence."""

    def candidates(self, source: Tensor, lengths: Tensor, columns: int, k: int) -> Candidates:
        """The k best words for each of the first `columns` places.

        source: [rows, longest] ids, ending in EOS and padded; lengths: [rows], EOS counted.
        """
        ...


@final
class ScoredCandidates:
    """The best words of whatever scores every word at every place, and the runner that carries it out."""

    def __init__(self, scores: PlaceScores, vocabulary: int, runner: Runner, special: SpecialIds = DEFAULT_IDS) -> None:
        self._vocabulary = vocabulary
        self._runner = runner
        self._program = Program(
            "scored candidates",
            lambda source, lengths, columns, k: from_logits(scores(source, lengths, columns), k, special),
        )

    def candidates(self, source: Tensor, lengths: Tensor, columns: int, k: int) -> Candidates:
        """The k likeliest words at each of the first `columns` places; see CandidateSource."""
        portion = max(1, MAX_SCORES // (columns * self._vocabulary))
        found: list[Candidates] = [
            self._runner.call(self._program, *both, columns, k)
            for both in zip(*(torch.split(both, portion) for both in (source, lengths)), strict=True)
        ]
        return Candidates(torch.cat([one.ids for one in found]), torch.cat([one.log_scores for one in found]))


def from_logits(logits: Tensor, k: int, special: SpecialIds = DEFAULT_IDS) -> Candidates:
    """The k best words by a model's logits [rows, columns, vocabulary], scored by their share of all symbols."""
    scores = logits.float().log_softmax(-1)
    for symbol in not_words(special):  # one by one: a list of them would have to be sent to the device each time
        scores[..., symbol].fill_(-torch.inf)
    found = scores.topk(min(k, scores.shape[-1]), dim=-1)
    return filled(found.indices, found.values, k, special.pad)


def filled(ids: Tensor, log_scores: Tensor, k: int, pad: int) -> Candidates:
    """Candidates widened to k, with `pad` wherever there is no score. Both: [rows, columns, at most k]."""
    if missing := k - ids.shape[-1]:
        ids, log_scores = F.pad(ids, (0, missing), value=pad), F.pad(log_scores, (0, missing), value=-torch.inf)
    return Candidates(ids.masked_fill(log_scores == -torch.inf, pad), log_scores)


def usable(candidates: Candidates, banned: Tensor | None, fallback: int, pad: int) -> Candidates:
    """Without banned ids [n]; a column that has no candidate left gets `fallback`, since a path must go somewhere."""
    ids, scores = candidates.ids, candidates.log_scores
    bad = scores == -torch.inf
    if banned is not None:
        bad = bad | torch.isin(ids, banned)
        ids, scores = ids.masked_fill(bad, pad), scores.masked_fill(bad, -torch.inf)
    slot = torch.zeros_like(bad)
    slot[..., 0] = bad.all(dim=-1)
    return Candidates(ids.masked_fill(slot, fallback), scores.masked_fill(slot, 0.0))


def pruned(candidates: Candidates, logits: Tensor, k: int, pad: int) -> Candidates:
    """The k of each column with the largest log_scores + logits [rows, columns, K], and the others as the rest.

    Whoever proposed them and the model are asked alike. What a column's logits share changes nothing, so that they need
    no normalising.
    """
    ranked, order = (candidates.log_scores + logits).sort(dim=-1, descending=True, stable=True)
    ids = candidates.ids.gather(-1, order).masked_fill(ranked == -torch.inf, pad)
    return Candidates(ids[..., :k], candidates.log_scores.gather(-1, order)[..., :k], ids[..., k:])
