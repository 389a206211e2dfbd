import statistics as slow

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.bench.statistics import Ratio, per_item, per_second, ratio_of_means, summarise
from longstride.contract import InputError
from longstride.tasks.bootstrap import resample_indices

times = st.integers(1, 10**7)


def _percentile(values: list[float], percent: float) -> float:
    """Linear interpolation between the two nearest ranks, by the book."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


@given(st.lists(times, min_size=1, max_size=40))
def test_summary_equals_the_book(values: list[int]) -> None:
    found = summarise([values])
    assert found.mean == pytest.approx(slow.fmean(values))
    assert (found.p50, found.p90, found.p99) == pytest.approx([_percentile(list(values), p) for p in (50, 90, 99)])


def test_all_passes_count() -> None:
    assert summarise([[1, 2], [3, 10]]).mean == 4
    assert per_item([[1, 2], [3, 10]]) == [2, 6]


def _slow_ratio(baseline: list[int], candidate: list[int], resamples: int, seed: int) -> Ratio:
    ratios: list[float] = []
    for indices in resample_indices(len(baseline), resamples, seed).tolist():
        ratios.append(sum(baseline[index] for index in indices) / sum(candidate[index] for index in indices))
    return Ratio(sum(baseline) / sum(candidate), _percentile(ratios, 2.5), _percentile(ratios, 97.5))


@given(st.lists(st.tuples(times, times), min_size=1, max_size=12))
def test_ratio_equals_resampling_by_hand(pairs: list[tuple[int, int]]) -> None:
    baseline, candidate = [one for one, _ in pairs], [other for _, other in pairs]
    fast, by_hand = ratio_of_means(baseline, candidate, 30, 5), _slow_ratio(baseline, candidate, 30, 5)
    assert (fast.value, fast.low, fast.high) == pytest.approx((by_hand.value, by_hand.low, by_hand.high))


def test_twice_as_fast_everywhere_leaves_no_doubt() -> None:
    assert ratio_of_means([2, 4, 8], [1, 2, 4]) == Ratio(2.0, 2.0, 2.0)


def test_throughput() -> None:
    assert per_second(10, [[500_000], [500_000]]) == 20.0


def test_refusals() -> None:
    with pytest.raises(InputError, match="found none"):
        summarise([[]])
    with pytest.raises(InputError, match="found 1 and 2 of them"):
        ratio_of_means([1], [1, 2])
