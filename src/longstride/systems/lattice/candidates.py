"""The candidate lattice: which words may stand at which place of the output. Knows neither edges nor lengths.

Three constructions make one (Figure 1): counts over alignments (`tables.Tables`), one reduced vocabulary for
the whole sentence (`shared.SharedVocabulary`), and whatever has logits per place (`from_logits`). All of them propose
words alone: the end of the sentence and the padding after it are put in by the length window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from longstride.contract import EOS, MASK, PAD, START

NOT_WORDS = (PAD, START, EOS, MASK)
"""Symbols that are never candidates."""


@dataclass(frozen=True)
class Candidates:
    """The words that may stand in each column, best first."""

    ids: Tensor
    """[rows, columns, K] int64, distinct within a column, PAD where there are fewer than K"""
    log_scores: Tensor
    """[rows, columns, K] log P(y | x, t), -inf where there are fewer than K"""


class CandidateSource(Protocol):
    """Whatever proposes words for a sentence."""

    def candidates(self, source: Tensor, lengths: Tensor, columns: int, k: int) -> Candidates:
        """The k best words for each of the first `columns` places.

        source: [rows, longest] ids, ending in EOS and padded; lengths: [rows], EOS counted.
        """
        ...


def from_logits(logits: Tensor, k: int) -> Candidates:
    """The k best words by a model's logits [rows, columns, vocabulary], scored by their share of all symbols."""
    scores = logits.float().log_softmax(-1)
    for symbol in NOT_WORDS:  # one by one: a list of them would have to be sent to the device each time
        scores[..., symbol].fill_(-torch.inf)
    found = scores.topk(min(k, scores.shape[-1]), dim=-1)
    return filled(found.indices, found.values, k)


def filled(ids: Tensor, log_scores: Tensor, k: int) -> Candidates:
    """Candidates widened to k, with PAD wherever there is no score. Both: [rows, columns, at most k]."""
    if missing := k - ids.shape[-1]:
        ids = torch.nn.functional.pad(ids, (0, missing), value=PAD)
        log_scores = torch.nn.functional.pad(log_scores, (0, missing), value=-torch.inf)
    return Candidates(ids.masked_fill(log_scores == -torch.inf, PAD), log_scores)
