"""The whole road from a recipe to a model that does its task."""

from __future__ import annotations

import pytest

from longstride.recipe import Outcome
from tests.system.conftest import Train


def test_a_recipe_keeps_its_promise(reverser: Outcome) -> None:
    assert reverser.result.scores["exact"] >= 0.99
    assert reverser.model is not None


@pytest.mark.parametrize(("task", "seed"), [("reverse", 4), ("copy", 2)])
def test_a_toy_is_learnt_from_another_seed(train: Train, task: str, seed: int) -> None:
    outcome = train(task, "run", training__seed=seed, data__batches__seed=seed)
    assert outcome.result.scores["exact"] >= 0.99
    assert outcome.model is not None
