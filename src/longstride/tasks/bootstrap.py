"""Paired bootstrap (Koehn, 2004): would the difference between two systems survive another test set of this kind?

The test set is drawn anew many times with replacement, both systems are scored on each draw, and the spread of the
differences tells how much of the observed one is luck. Scores depend on sums over sentences only, so a draw is a vector
of counts and all draws together are one matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from longstride.contract import InputError, OptionError
from longstride.tasks.score import Figures, Metric, check_pairs

RESAMPLES = 1000
SEED = 12345


@dataclass(frozen=True)
class Comparison:
    """How a candidate scored against a baseline on the same sentences."""

    metric: str
    signature: str
    baseline: float
    candidate: float
    difference: float
    """candidate less baseline"""
    low: float
    high: float
    """95 % interval of the difference: the 2.5th and 97.5th percentile over the draws"""
    p_value: float
    """two-sided: how often a draw strays from the observed difference by at least as much as that is from zero"""
    resamples: int
    seed: int


@dataclass(frozen=True)
class Interval:
    """Where a system's score would lie on other test sets of this kind."""

    metric: str
    value: float
    low: float
    high: float
    """95 %: the 2.5th and 97.5th percentile over the draws"""
    resamples: int
    seed: int


def score_interval(
    metric: Metric,
    references: Sequence[str],
    outputs: Sequence[str],
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """How much of one system's score is luck. Intervals that overlap prove nothing: compare systems in pairs."""
    figures = metric.statistics(outputs, references)
    drawn = [metric.value(row) for row in resample_counts(figures.shape[0], resamples, seed) @ figures]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Interval(metric.name, metric.value(figures.sum(axis=0)), float(low), float(high), resamples, seed)


def paired_bootstrap(
    metric: Metric,
    references: Sequence[str],
    baseline: Sequence[str],
    candidate: Sequence[str],
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Comparison:
    """Compare two systems' outputs for the same references."""
    check_pairs(baseline, references)
    check_pairs(candidate, references)
    return compare_statistics(
        metric,
        metric.statistics(baseline, references),
        metric.statistics(candidate, references),
        resamples,
        seed,
    )


def compare_statistics(
    metric: Metric, baseline: Figures, candidate: Figures, resamples: int = RESAMPLES, seed: int = SEED
) -> Comparison:
    """Compare from the metric's statistics [sentences, figures], for those who compare one system with several."""
    if baseline.shape[0] != candidate.shape[0]:
        raise InputError(
            f"Expected two systems with equally many sentences, found {baseline.shape[0]} and {candidate.shape[0]}."
        )
    counts = resample_counts(baseline.shape[0], resamples, seed)
    drawn_baseline = np.array([metric.value(row) for row in counts @ baseline])
    drawn_candidate = np.array([metric.value(row) for row in counts @ candidate])
    score_baseline, score_candidate = metric.value(baseline.sum(axis=0)), metric.value(candidate.sum(axis=0))
    difference = score_candidate - score_baseline
    drawn = drawn_candidate - drawn_baseline
    low, high = np.percentile(drawn, [2.5, 97.5])
    # One is added to both counts so that no finite number of draws claims certainty.
    strayed = int((np.abs(drawn - difference) >= abs(difference)).sum())
    return Comparison(
        metric.name,
        metric.signature,
        score_baseline,
        score_candidate,
        difference,
        float(low),
        float(high),
        (strayed + 1) / (resamples + 1),
        resamples,
        seed,
    )


def resample_indices(items: int, resamples: int, seed: int) -> NDArray[np.int64]:
    """Which items each draw takes: [resamples, items], with replacement."""
    if items < 1 or resamples < 1:
        raise OptionError(f"A bootstrap expects 1 or more items and resamples, found {items} and {resamples}.")
    return np.random.default_rng(seed).integers(0, items, size=(resamples, items))


def resample_counts(items: int, resamples: int, seed: int) -> Figures:
    """How often each draw takes each item: [resamples, items]; each row adds up to `items`."""
    indices = resample_indices(items, resamples, seed)
    flat = indices + items * np.arange(resamples)[:, None]
    return np.bincount(flat.ravel(), minlength=resamples * items).reshape(resamples, items).astype(np.float64)
