"""The whole road from a recipe to a model that does its task, from several seeds."""

from __future__ import annotations

import pytest

from tests.system.conftest import Train

SEEDS = range(1, 6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("task", ["reverse", "copy"])
def test_a_toy_is_learnt_from_any_seed(train: Train, task: str, seed: int) -> None:
    outcome = train(task, "run", training__seed=seed, data__batches__seed=seed)
    assert outcome.result.scores["exact"] >= 0.99
    assert outcome.model is not None
