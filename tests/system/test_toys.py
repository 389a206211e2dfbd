"""The whole road from a recipe to a model that does its task."""

from __future__ import annotations

from longstride.recipe import Outcome
from tests.system.conftest import Train


def test_a_recipe_keeps_its_promise(reverser: Outcome) -> None:
    assert reverser.result.scores["exact"] >= 0.99
    assert reverser.model is not None


def test_another_toy_is_learnt_from_another_seed(train: Train) -> None:
    """As the student of test_distillation.py learns the first."""
    outcome = train("copy", "run", training__seed=2, data__batches__seed=2)
    assert outcome.result.scores["exact"] >= 0.99
    assert outcome.model is not None
