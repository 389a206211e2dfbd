from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from longstride.cli.train import read_recipe
from longstride.recipe import Outcome, run

ROOT = Path(__file__).resolve().parents[2]

Train = Callable[..., Outcome]


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """Train one of the toy recipes in a folder of its own, with changes."""

    def call(name: str, folder: str, **changes: object) -> Outcome:
        settings = {key.replace("__", "."): value for key, value in changes.items()}
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # models this small only lose by more
        try:
            return run(read_recipe(ROOT / "recipes" / "toy" / f"{name}.yaml", settings), tmp_path / folder)
        finally:
            torch.set_num_threads(threads)

    return call
