"""What readings of a clock add up to: mean and percentiles, ratios with an interval, throughput. Knows no records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from longstride.contract import InputError
from longstride.tasks.bootstrap import RESAMPLES, SEED, resample_counts


@dataclass(frozen=True)
class Summary:
    """Readings of all passes taken together, in the unit they came in."""

    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class Ratio:
    """How many times faster, and the 95 % interval over resampled sentences."""

    value: float
    low: float
    high: float


def summarise(readings: Sequence[Sequence[float]]) -> Summary:
    """Mean and percentiles over all passes [passes, items]: a slow reading counts even if another pass was fast."""
    pooled = np.asarray(readings, dtype=np.float64).ravel()
    if pooled.size == 0:
        raise InputError("Expected at least one reading to summarise, found none.")
    p50, p90, p99 = np.percentile(pooled, [50, 90, 99])
    return Summary(float(pooled.mean()), float(p50), float(p90), float(p99))


def per_item(readings: Sequence[Sequence[float]]) -> list[float]:
    """The mean over passes [passes, items] of each item."""
    return [float(value) for value in np.asarray(readings, dtype=np.float64).mean(axis=0)]


def ratio_of_means(
    baseline: Sequence[float], candidate: Sequence[float], resamples: int = RESAMPLES, seed: int = SEED
) -> Ratio:
    """Mean of the baseline over mean of the candidate, for the same items in the same order.

    The interval resamples items, taking both times of an item together: machine noise and hard sentences fall on both.
    """
    if len(baseline) != len(candidate) or not baseline:
        raise InputError(f"Expected readings of the same items, found {len(baseline)} and {len(candidate)} of them.")
    pairs = np.stack([np.asarray(baseline, dtype=np.float64), np.asarray(candidate, dtype=np.float64)], axis=1)
    sums = resample_counts(len(baseline), resamples, seed) @ pairs  # [resamples, 2]
    low, high = np.percentile(sums[:, 0] / sums[:, 1], [2.5, 97.5])
    total = pairs.sum(axis=0)
    return Ratio(float(total[0] / total[1]), float(low), float(high))


def per_second(amount: float, readings_us: Sequence[Sequence[float]]) -> float:
    """How much of `amount` (tokens or sentences of one pass) went through per second, over all passes."""
    total = float(np.asarray(readings_us, dtype=np.float64).sum())
    return amount * len(readings_us) / (total / 1e6) if total else 0.0
