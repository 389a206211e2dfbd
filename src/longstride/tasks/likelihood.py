"""How probable a model holds many given outputs: one log-probability per sentence. Knows models by the contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from longstride.contract import Factorisation, InputError, Likelihood
from longstride.text.batches import BatchOptions, TokenBatches
from longstride.text.binarized import BinarizedCorpus

TOKENS = 8192
"""Target tokens scored at once: bounded memory, however many sentences there are."""

Pair = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class Likelihoods:
    """What a model makes of sentence pairs."""

    totals: NDArray[np.float64]
    """[pairs] log-probability of the target given the source, in nats, EOS included"""
    tokens: NDArray[np.int64]
    """[pairs] target tokens, EOS included"""
    factorisation: Factorisation

    @property
    def mean_surprise(self) -> float:
        """Negative log-probability of a token in nats, over the whole corpus: the logarithm of perplexity."""
        return -float(self.totals.sum()) / int(self.tokens.sum())


def likelihoods(
    model: Likelihood, pairs: Sequence[Pair], progress: Callable[[int, int], None] = lambda done, total: None
) -> Likelihoods:
    """Score pairs of ids, each ending in EOS; `progress` hears of batches."""
    if not pairs:
        raise InputError("Expected at least one reference to score, found none.")
    longest = max(max(len(source), len(target)) for source, target in pairs)
    corpus = BinarizedCorpus.from_pairs(pairs, model.special)
    data = TokenBatches(corpus, BatchOptions(tokens=max(TOKENS, longest), shuffle=False))
    totals, tokens = np.zeros(len(pairs)), np.zeros(len(pairs), dtype=np.int64)
    batches = data.batches_in(0)
    for number, batch in enumerate(data.epoch(0)):
        progress(number, batches)
        places = batch.index.numpy()
        totals[places] = model.log_probabilities(batch).sum(dim=1).cpu().numpy()
        tokens[places] = batch.target_lengths.numpy()
    progress(batches, batches)
    return Likelihoods(totals, tokens, model.factorisation)
