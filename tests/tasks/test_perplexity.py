"""Perplexity against its definition, step by step, without batches, under every factorisation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from longstride.contract import EOS, START, Factorisation, InputError, Likelihood
from longstride.nn.losses import Smoothing
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.objective import likelihood as autoregressive_likelihood
from longstride.systems.blockwise.model import Heads, HeadsOptions
from longstride.systems.interleaved.objective import InterleavedObjective
from longstride.systems.interleaved.objective import likelihood as interleaved_likelihood
from longstride.tasks import likelihood
from longstride.tasks.likelihood import Likelihoods, likelihoods, perplexity
from longstride.text.batches import BatchOptions, TokenBatches
from longstride.text.binarized import BinarizedCorpus
from tests.decoding.interleaved import EVERY, in_order, next_step, tiny_interleaved
from tests.models import tiny_model

PAIRS = [
    ([5, 6, 3], [7, 3]),
    ([6, 3], [5, 8, 9, 3]),
    ([9, 9, 9, 3], [3]),
    ([5, 10, 3], [6, 5, 6, 7, 6, 3]),
    ([8, 3], [10, 9, 8, 7, 6, 5, 6, 7, 3]),
]
RUNNER = EagerRunner("cpu", "fp64")


def token_by_token(model: Any, source: list[int], target: list[int], choose: Any = lambda hidden: hidden) -> float:
    memory = model.encode(torch.tensor([source]), None)
    total = 0.0
    for place, token in enumerate(target):
        hidden = model.decode(torch.tensor([[START, *target[:place]]]), memory, None)
        total += float(model.logits(choose(hidden))[0, -1].log_softmax(-1)[token])
    return total


def test_token_after_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likelihood, "TOKENS", 12)
    model = tiny_model(3)
    expected = [token_by_token(model, source, target) for source, target in PAIRS]
    heard: list[tuple[int, int]] = []
    found = likelihoods(
        autoregressive_likelihood(model, RUNNER), PAIRS, lambda done, total: heard.append((done, total))
    )
    assert found.totals == pytest.approx(expected, rel=1e-9)
    assert found.tokens.tolist() == [len(target) for _, target in PAIRS]
    assert len(heard) > 2
    assert heard[-1][0] == heard[-1][1] == len(heard) - 1


def test_a_learned_first_head_scores_for_itself() -> None:
    model = tiny_model(3)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        heads = Heads(HeadsOptions(k=2, width=model.options.width, feed_forward=8, first="learned"))
    heads.double().eval().requires_grad_(False)
    expected = [token_by_token(model, source, target, heads.first) for source, target in PAIRS]
    found = likelihoods(autoregressive_likelihood(model, RUNNER, heads.first), PAIRS)
    assert found.totals == pytest.approx(expected, rel=1e-9)


def step_by_step(model: Any, source: list[int], target: list[int]) -> float:
    """Each step's words given those of all earlier steps, and the neighbour that one is linked to; the order found by
    trying where every word would end up."""
    order = in_order(list(range(len(target) - 1)), model.options)  # which slot each word of the sentence comes from
    words = [target[order.index(slot)] for slot in range(len(target) - 1)] + [EOS]
    step, total = model.options.step, 0.0
    for start in range(0, len(words), step):
        scores, said = next_step(model, source, words[:start]), words[start : start + step]
        total += sum(scores(said[:slot])[token] for slot, token in enumerate(said))
    return total


@pytest.mark.parametrize("variant", EVERY, ids=str)
def test_step_after_step_in_any_order(variant: dict[str, Any]) -> None:
    model = tiny_interleaved(2, variant)
    expected = [step_by_step(model, source, target) for source, target in PAIRS]
    assert likelihoods(interleaved_likelihood(model, RUNNER), PAIRS).totals == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("variant", EVERY, ids=str)
def test_it_is_what_training_minimises(variant: dict[str, Any]) -> None:
    model = tiny_interleaved(2, variant)
    objective = InterleavedObjective(Smoothing(label_smoothing=0.0))
    (batch,) = TokenBatches(BinarizedCorpus.from_pairs(PAIRS), BatchOptions(shuffle=False)).epoch(0)
    loss = objective.loss(model, objective.prepare(batch, torch.Generator()))
    scored = interleaved_likelihood(model, RUNNER).log_probabilities(batch)
    assert float(scored.sum()) == pytest.approx(-float(loss.total), rel=1e-9)
    assert scored.shape == batch.target.shape
    assert not scored[torch.arange(batch.target.shape[1]) >= batch.target_lengths[:, None]].any()


def test_the_ordinary_transformer_is_the_same_either_way() -> None:
    model = tiny_interleaved(4, {"h": 1, "c": 1})
    plain: Likelihood = autoregressive_likelihood(model.model, RUNNER)
    interleaved = interleaved_likelihood(model, RUNNER)
    assert likelihoods(interleaved, PAIRS).totals == pytest.approx(likelihoods(plain, PAIRS).totals, rel=1e-9)
    assert interleaved.factorisation == plain.factorisation == Factorisation()


def test_a_factorisation_says_whether_neighbours_are_linked() -> None:
    apart, linked = (
        interleaved_likelihood(tiny_interleaved(4, {"h": 1, "c": 2, "link": link}), RUNNER).factorisation
        for link in (0, 2)
    )
    assert apart.signature == "order:left-to-right|together:2|"
    assert linked.signature == "order:left-to-right|together:2|linked|"


def test_perplexity_is_the_exponential_of_the_mean_surprise_of_a_token() -> None:
    found = Likelihoods(np.array([-2.0, -4.0]), np.array([1, 2]), Factorisation())
    score = perplexity(found, "abc" * 10)
    assert score.value == pytest.approx(math.exp(2.0))
    assert score.signature == "perplexity|tokens|eos:yes|tokenizer:abcabcabcabc"
    assert perplexity(Likelihoods(np.array([-1e5]), np.array([1]), Factorisation()), "").value == math.inf


@pytest.mark.parametrize(
    ("variant", "told"),
    [
        ({"h": 1, "c": 2}, "order:left-to-right|together:2"),
        ({"h": 2, "c": 2}, "order:2-directions-side-to-middle|together:4"),
        ({"h": 2, "autoregressive": True}, "order:2-directions-side-to-middle|together:1"),
        ({"h": 4, "order": "middle-to-side"}, "order:4-directions-middle-to-side|together:4"),
    ],
)
def test_the_signature_names_the_factorisation(variant: dict[str, Any], told: str) -> None:
    found = likelihoods(interleaved_likelihood(tiny_interleaved(0, variant), RUNNER), PAIRS)
    assert perplexity(found, "abc").signature == f"perplexity|tokens|eos:yes|{told}|tokenizer:abc"


def test_nothing_has_no_perplexity() -> None:
    with pytest.raises(InputError, match="at least one reference"):
        likelihoods(autoregressive_likelihood(tiny_model(), RUNNER), [])
