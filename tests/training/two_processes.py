"""What each process of the two-process tests runs under torchrun: train the toy in several ways, keep what came out."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from longstride.training.distributed import Team, join
from longstride.training.validation import Validator
from tests.training.toys import ToyModel, ToySource, train_toy, weights


def train(team: Team, folder: Path, steps: int, dropout: float = 0.0, resume: bool = False) -> None:
    model, result = train_toy(
        folder,
        resume,
        # The processes begin with different weights: those of the first must win.
        model=ToyModel(seed=team.rank, dropout=dropout).double(),
        data=ToySource(batches=9),
        validation=ToySource(batches=3, seed=3),
        validators=[Validator("score", 5, True, lambda model: 10.0 + team.rank)],
        steps=steps,
        accumulation=2,
        clip=0.5,
        team=team,
    )
    assert result.scores["score"] == 10.0
    state = {name: tensor.clone() for name, tensor in weights(model).items()}
    save_file(state, folder / f"rank{team.rank}.safetensors")


if __name__ == "__main__":
    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    mine = join(torch.device("cpu"))
    train(mine, out / "plain", 10)
    train(mine, out / "whole", 8, dropout=0.3)
    train(mine, out / "parts", 5, dropout=0.3)
    train(mine, out / "parts", 8, dropout=0.3, resume=True)
    mine.leave()
