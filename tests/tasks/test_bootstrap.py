import random

import numpy as np
import pytest

from longstride.contract import InputError, OptionError
from longstride.tasks.bootstrap import paired_bootstrap, resample_counts, resample_indices
from longstride.tasks.score import Metric
from longstride.tasks.translation import Bleu, Chrf

WORDS = ["the", "a", "cat", "dog", "house", "sees", "likes", "big", "small", "red"]


def _corpus(sentences: int, errors: float, seed: int) -> tuple[list[str], list[str]]:
    rng = random.Random(seed)
    references, outputs = [], []
    for _ in range(sentences):
        words = [rng.choice(WORDS) for _ in range(rng.randint(3, 12))]
        references.append(" ".join(words))
        outputs.append(" ".join("wrong" if rng.random() < errors else word for word in words))
    return outputs, references


def _slow(
    metric: Metric, references: list[str], baseline: list[str], candidate: list[str], resamples: int, seed: int
) -> tuple[float, float, float]:
    """Score every resampled corpus from its text."""
    observed = metric.score(candidate, references).value - metric.score(baseline, references).value
    differences = []
    for indices in resample_indices(len(references), resamples, seed).tolist():
        drawn = [references[index] for index in indices]
        better = metric.score([candidate[index] for index in indices], drawn).value
        differences.append(better - metric.score([baseline[index] for index in indices], drawn).value)
    strayed = sum(abs(difference - observed) >= abs(observed) for difference in differences)
    low, high = np.percentile(differences, [2.5, 97.5])
    return low, high, (strayed + 1) / (resamples + 1)


@pytest.mark.parametrize("metric", [Bleu(), Chrf()])
def test_equals_scoring_every_draw_from_its_text(metric: Metric) -> None:
    baseline, references = _corpus(12, 0.3, seed=1)
    candidate, _ = _corpus(12, 0.2, seed=1)
    fast = paired_bootstrap(metric, references, baseline, candidate, resamples=40, seed=3)
    low, high, p_value = _slow(metric, references, baseline, candidate, resamples=40, seed=3)
    assert (fast.low, fast.high, fast.p_value) == pytest.approx((low, high, p_value), abs=1e-9)


def test_a_system_does_not_differ_from_itself() -> None:
    outputs, references = _corpus(20, 0.3, seed=2)
    same = paired_bootstrap(Bleu(), references, outputs, outputs)
    assert (same.difference, same.low, same.high, same.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_a_clear_difference_is_found_and_swapping_turns_its_sign() -> None:
    worse, references = _corpus(200, 0.4, seed=4)
    better, _ = _corpus(200, 0.1, seed=4)
    found = paired_bootstrap(Bleu(), references, worse, better)
    assert found.p_value < 0.01
    assert 0 < found.low < found.difference < found.high
    swapped = paired_bootstrap(Bleu(), references, better, worse)
    assert (swapped.difference, swapped.low, swapped.high) == pytest.approx(
        (-found.difference, -found.high, -found.low)
    )
    assert swapped.p_value == found.p_value


def test_the_seed_decides() -> None:
    worse, references = _corpus(30, 0.3, seed=5)
    better, _ = _corpus(30, 0.2, seed=5)
    first, again, other = (paired_bootstrap(Bleu(), references, worse, better, 100, seed) for seed in (1, 1, 2))
    assert first == again
    assert first.low != other.low


def test_counts_are_the_indices_counted() -> None:
    indices, counts = resample_indices(7, 5, 0), resample_counts(7, 5, 0)
    for row, drawn in enumerate(indices.tolist()):
        assert counts[row].tolist() == [drawn.count(item) for item in range(7)]


def test_refusals() -> None:
    with pytest.raises(InputError, match="2 outputs, 1 references"):
        paired_bootstrap(Bleu(), ["a"], ["a", "b"], ["a"])
    with pytest.raises(OptionError, match="found 1 and 0"):
        paired_bootstrap(Bleu(), ["a"], ["a"], ["a"], resamples=0)
