"""How probable a model holds given outputs: perplexity, and what words of one step tell about each other (PMI).

Knows models by the contract. PMI = log ppl(model) - log ppl(base) over the same references (Eq. 13, Appendix B of the
interleaved paper): the model predicts several words per step as if they were independent, the base writes the same
order one word at a time. It is a figure per token; the paper prints it to base 10: log10(6.95 / 4.04) = 0.2356. It is
an estimate by two trained models, not a property of either, and can be negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from longstride.contract import Factorisation, InputError, Likelihood, OptionError
from longstride.tasks.bootstrap import RESAMPLES, SEED, resample_counts
from longstride.tasks.score import Score
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
    def cross_entropy(self) -> float:
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


def perplexity(found: Likelihoods, tokenizer_sha256: str) -> Score:
    """exp(summed negative log-probability / tokens) over the corpus, end-of-sentence tokens included.

    Tokens are the model's: only models with the same tokenizer can be compared.
    """
    mean = found.cross_entropy
    value = math.exp(mean) if mean < 700 else math.inf
    how = f"perplexity|tokens|eos:yes|{found.factorisation.signature}tokenizer:{tokenizer_sha256[:12]}"
    return Score("perplexity", value, how)


@dataclass(frozen=True)
class MutualInformation:
    """The estimate, per token."""

    nats: float
    low: float
    high: float
    """95 % interval of `nats` over draws of the test set, both models scored on the same draw"""
    perplexity: float
    base_perplexity: float
    base: str
    """the model that writes one token at a time"""
    order: str
    together: int
    """tokens that the model predicts independently"""
    tokenizer: str

    @property
    def log10(self) -> float:
        """To base 10, as the paper prints it."""
        return self.nats / math.log(10)

    @property
    def scores(self) -> list[Score]:
        """In nats and to base 10."""
        how = f"per-token|order:{self.order}|together:{self.together}|tokenizer:{self.tokenizer}"
        return [Score("PMI", self.nats, f"pmi|nats|{how}"), Score("PMI (log10)", self.log10, f"pmi|log10|{how}")]


def check_base(model: Factorisation, base: Factorisation, name: str) -> None:
    """Refuse a base that says nothing of the model's words of one step, which can be known before any is scored."""
    if base.together != 1:
        raise OptionError(f"{name}: mutual information expects a base of one token per step, found {base.together}.")
    if base.order != model.order:
        raise OptionError(
            f"{name}: mutual information expects a base that writes in the model's order, {model.order}, found "
            f"{base.order}."
        )


def mutual_information(
    model: Likelihoods,
    base: Likelihoods,
    name: str,
    tokenizer_sha256: str,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> MutualInformation:
    """Compare what two models make of the same references; `name` is the base's."""
    check_base(model.factorisation, base.factorisation, name)
    if not np.array_equal(model.tokens, base.tokens):
        raise InputError(f"{name}: mutual information expects the same references for both models, found others.")
    counts = resample_counts(len(model.totals), resamples, seed)  # [resamples, sentences]
    drawn = (counts @ (base.totals - model.totals)) / (counts @ model.tokens)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return MutualInformation(
        model.cross_entropy - base.cross_entropy,
        float(low),
        float(high),
        _perplexity(model),
        _perplexity(base),
        name,
        model.factorisation.order,
        model.factorisation.together,
        tokenizer_sha256[:12],
    )


def _perplexity(found: Likelihoods) -> float:
    return math.exp(min(found.cross_entropy, 700.0))
