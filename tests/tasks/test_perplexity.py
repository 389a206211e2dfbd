"""Perplexity against its definition, token by token, without batches."""

from __future__ import annotations

import math

import pytest
import torch

from longstride.contract import START, Batch, BatchSource, InputError
from longstride.systems.autoregressive.objective import AutoregressiveObjective, AutoregressiveObjectiveOptions
from longstride.tasks.perplexity import perplexity
from longstride.text.batches import BatchOptions, TokenBatches
from longstride.text.binarized import BinarizedCorpus
from tests.models import tiny_model

PAIRS = [([5, 6, 3], [7, 3]), ([6, 3], [5, 8, 9, 3]), ([9, 9, 9, 3], [3]), ([5, 10, 3], [6, 6, 6, 6, 6, 3])]
CPU = torch.device("cpu")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_it_is_the_exponential_of_the_mean_surprise_of_a_token(smoothing: float) -> None:
    model = tiny_model(3)
    surprise, tokens = 0.0, 0
    for source, target in PAIRS:
        memory = model.encode(torch.tensor([source]), None)
        for place, token in enumerate(target):
            inputs = torch.tensor([[START, *target[:place]]])
            logits = model.logits(model.decode(inputs, memory, None))[0, -1]
            surprise -= float(logits.log_softmax(-1)[token])
            tokens += 1
    data = TokenBatches(BinarizedCorpus.from_pairs(PAIRS), BatchOptions(tokens=12, shuffle=False))
    assert data.batches_in(0) > 1
    objective = AutoregressiveObjective(AutoregressiveObjectiveOptions(label_smoothing=smoothing))
    heard: list[tuple[int, int]] = []
    score = perplexity(model, objective, data, CPU, "abc" * 10, lambda done, total: heard.append((done, total)))
    assert score.value == pytest.approx(math.exp(surprise / tokens), rel=1e-9)
    assert score.signature == "perplexity|tokens|eos:yes|tokenizer:abcabcabcabc"
    assert heard[-1] == (data.batches_in(0), data.batches_in(0))


def test_nothing_has_no_perplexity() -> None:
    class Nothing(BatchSource):
        def epoch(self, number: int, skip: int = 0) -> list[Batch]:  # type: ignore[override]
            return []

        def batches_in(self, number: int) -> int:
            return 0

    objective = AutoregressiveObjective(AutoregressiveObjectiveOptions())
    with pytest.raises(InputError, match="at least one reference"):
        perplexity(tiny_model(), objective, Nothing(), CPU, "")
