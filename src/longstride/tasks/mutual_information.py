"""How much words that a model predicts independently tell about each other (Appendix B of the interleaved paper).

Definition (Eq. 13). PMI = log ppl(model) - log ppl(base), both over the same references. The model predicts several
words per step as if they were independent; the base writes the same order one word at a time, so that what it gains is
what these words tell about each other. It is a figure per token, as perplexity is; per pair of words it is twice that.
The paper prints it to base 10: of its own perplexities, log10(6.95 / 4.04) = 0.2356 and log10(4.72 / 4.86) = -0.0127.
It is an estimate by two trained models, not a property of either, and can be negative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from longstride.contract import Factorisation, InputError, OptionError
from longstride.tasks.bootstrap import RESAMPLES, SEED, resample_counts
from longstride.tasks.likelihood import Likelihoods
from longstride.tasks.score import Score


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
        model.mean_surprise - base.mean_surprise,
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
    return math.exp(min(found.mean_surprise, 700.0))
