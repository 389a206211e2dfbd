"""Two processes under torchrun learn what one process with twice the accumulation learns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from longstride.training.distributed import Team, alone, join
from longstride.training.prefetch import groups
from longstride.training.validation import Validator
from tests.training.toys import ToyModel, ToyObjective, ToySource, read_metrics, same, train_toy, weights

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes made (see two_processes.py)."""
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["-m", "tests.training.two_processes", str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def test_two_processes_equal_twice_the_accumulation(tmp_path: Path, trained: Path) -> None:
    # Nine batches, four to an update: each epoch's third update leaves the second process without a batch.
    one, _ = train_toy(
        tmp_path,
        model=ToyModel(seed=0).double(),
        data=ToySource(batches=9),
        validation=ToySource(batches=3, seed=3),
        validators=[Validator("score", 5, True, lambda model: 10.0)],
        steps=10,
        accumulation=4,
        clip=0.5,
    )
    first, second = (load_file(trained / f"plain/rank{rank}.safetensors") for rank in (0, 1))
    assert same(first, second)
    for name, tensor in weights(one).items():
        torch.testing.assert_close(first[name], tensor, rtol=1e-9, atol=1e-12)
    alike = read_metrics(tmp_path / "metrics.jsonl"), read_metrics(trained / "plain/metrics.jsonl")
    for left, right in zip(*alike, strict=True):
        for name in ("kind", "step", "epoch", "name", "best", "tokens", "learning_rate"):
            assert left.get(name) == right.get(name)
        for name in ("loss", "value", "figures", "gradient_norm"):
            assert (name in left) == (name in right)
            assert name not in left or left[name] == pytest.approx(right[name], rel=1e-6)


def test_two_processes_resume_with_their_own_dropout(trained: Path) -> None:
    whole, parts = (load_file(trained / f"{run}/rank1.safetensors") for run in ("whole", "parts"))
    assert same(whole, parts)


@pytest.mark.parametrize("batches", [1, 5, 8, 9])
def test_processes_share_out_every_batch_once(batches: int) -> None:
    source, objective, cpu = ToySource(batches=batches), ToyObjective(), torch.device("cpu")
    whole = groups(source, objective, alone(cpu), 6, 1, 0, 0)
    shares = [groups(source, objective, Team(rank, 3, cpu), 2, 1, 0, 0) for rank in range(3)]
    for _ in range(4):
        everything, parts = next(whole), [next(share) for share in shares]
        assert {(part.epoch, part.after, part.ends_epoch) for part in parts} == {
            (everything.epoch, everything.after, everything.ends_epoch)
        }
        assert sum(part.tokens for part in parts) == everything.tokens
        for place, prepared in enumerate(everything.batches):
            mine = parts[place % 3].batches[place // 3]
            assert torch.equal(mine.tensors["source"], prepared.tensors["source"])


def test_without_torchrun_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert join(torch.device("cpu")) == alone(torch.device("cpu"))
