from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from longstride.cli.train import read_recipe
from longstride.recipe import Outcome, run

ROOT = Path(__file__).resolve().parents[2]

Train = Callable[..., Outcome]


def _train(root: Path, name: str, folder: str, **changes: object) -> Outcome:
    settings = {key.replace("__", "."): value for key, value in changes.items()}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # models this small only lose by more
    try:
        return run(read_recipe(ROOT / "recipes" / "toy" / f"{name}.yaml", settings), root / folder)
    finally:
        torch.set_num_threads(threads)


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """Train one of the toy recipes in a folder of its own, with changes."""
    return partial(_train, tmp_path)


@pytest.fixture(scope="session")
def reverser(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The toy that reverses words, as its recipe trains it: verifies, teaches, and is held to what it promises."""
    return _train(tmp_path_factory.mktemp("reverser"), "reverse", "run")
