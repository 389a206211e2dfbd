"""The estimate of Appendix B against the paper's own figures and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from longstride.contract import Factorisation, InputError, OptionError
from longstride.tasks.likelihood import Likelihoods, mutual_information

TWO_ENDS = "2-directions-side-to-middle"


def scored(perplexity: float, together: int = 1, order: str = "left-to-right") -> Likelihoods:
    tokens = np.array([3, 5, 2])
    return Likelihoods(-math.log(perplexity) * tokens, tokens, Factorisation(order, together))


@pytest.mark.parametrize(
    ("model", "base", "printed"),
    [
        (scored(6.95, 2), scored(4.04), 0.235),
        (scored(4.72, 2, TWO_ENDS), scored(4.86, 1, TWO_ENDS), -0.014),
    ],
)
def test_of_the_papers_perplexities(model: Likelihoods, base: Likelihoods, printed: float) -> None:
    found = mutual_information(model, base, "base", "abc" * 9)
    assert found.log10 == pytest.approx(printed, abs=0.002)  # the paper rounds perplexities more than their ratio
    assert found.nats == pytest.approx(math.log(found.perplexity / found.base_perplexity))
    assert found.low == pytest.approx(found.nats)  # every sentence says the same here
    assert found.high == pytest.approx(found.nats)
    nats, log10 = found.scores
    assert (nats.value, log10.value) == (found.nats, pytest.approx(found.nats / math.log(10)))
    order = model.factorisation.order
    assert nats.signature == f"pmi|nats|per-token|order:{order}|together:2|tokenizer:abcabcabcabc"
    assert log10.signature == f"pmi|log10|per-token|order:{order}|together:2|tokenizer:abcabcabcabc"


def test_by_hand() -> None:
    tokens = np.array([1, 3])
    model = Likelihoods(np.array([-2.0, -6.0]), tokens, Factorisation(together=2))
    base = Likelihoods(np.array([-1.0, -6.0]), tokens, Factorisation())
    found = mutual_information(model, base, "base", "", resamples=200)
    assert found.nats == pytest.approx(1 / 4)
    # Draws are both sentences (1/4), the first twice (2/2) or the second twice (0/6).
    assert (found.low, found.high) == (0.0, 1.0)
    assert (found.perplexity, found.base_perplexity) == (pytest.approx(math.exp(8 / 4)), pytest.approx(math.exp(7 / 4)))


@pytest.mark.parametrize(
    ("model", "base", "told"),
    [
        (scored(2, 2), scored(2, 2), "base: mutual information expects a base of one token per step, found 2"),
        (scored(2, 2, TWO_ENDS), scored(2), f"in the model's order, {TWO_ENDS}, found left-to-right"),
    ],
)
def test_another_base_is_refused(model: Likelihoods, base: Likelihoods, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        mutual_information(model, base, "base", "")


def test_other_references_are_refused() -> None:
    other = Likelihoods(np.array([-1.0]), np.array([3]), Factorisation())
    with pytest.raises(InputError, match="same references"):
        mutual_information(scored(2, 2), other, "base", "")
