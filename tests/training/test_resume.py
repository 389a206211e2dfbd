"""A run that is stopped and resumed ends in the same bits as one that is not: weights, metrics, optimizer, averages."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from longstride.contract import Loss, ModelFolderError, OptionError, Prepared, UsageError
from longstride.training.checkpoints import latest, load
from longstride.training.validation import Validator
from tests.training.toys import (
    TIMING,
    Listener,
    ToyModel,
    ToyObjective,
    ToySource,
    read_metrics,
    same,
    toy_trainer,
    train_toy,
    weights,
)


class StopsAt(ToyObjective):
    """Sends this process a signal in the middle of the n-th loss, as a person might."""

    def __init__(self, call: int, number: signal.Signals = signal.SIGINT) -> None:
        super().__init__()
        self.call, self.number, self.calls = call, number, 0

    def loss(self, model: nn.Module, prepared: Prepared) -> Loss:
        if model.training:
            self.calls += 1
            if self.calls == self.call:
                os.kill(os.getpid(), self.number)
        return super().loss(model, prepared)


def random_score(model: nn.Module) -> float:
    """A validator that uses up global randomness, which must not leak into training."""
    return float(torch.rand(())) + random.random() + float(np.random.rand())


def setting(**changes: Any) -> dict[str, Any]:
    return {
        "steps": 13,
        "accumulation": 2,
        "clip": 1.0,
        "validation": ToySource(batches=2, seed=9),
        "validators": [Validator("luck", 3, True, random_score)],
        "validate_every": 2,
        "keep_best": 2,
    } | changes


def timeless(folder: Path) -> list[dict[str, Any]]:
    records = read_metrics(folder / "metrics.jsonl")
    return [{name: value for name, value in record.items() if name not in TIMING} for record in records]


# Every update has two batches but each epoch's fourth, which has one (7 batches per epoch): updates 1, 2 and 6 stop
# in the middle of an epoch, 4 and 8 at its end, 12 where both validations are due; some calls fall on the first batch
# of two and some on the second.
@pytest.mark.parametrize("call", [1, 2, 3, 7, 11, 14, 20, 21, 23])
def test_resumed_equals_uninterrupted(tmp_path: Path, call: int) -> None:
    whole, result = train_toy(tmp_path / "whole", **setting())
    assert result.reason == "finished"
    _, stopped = train_toy(tmp_path / "parts", objective=StopsAt(call), **setting())
    assert stopped.interrupted
    assert stopped.step < 13 or call == 23
    assert latest(tmp_path / "parts/checkpoints") == stopped.checkpoint
    torch.manual_seed(123)  # whatever happens between the two
    parts, resumed = train_toy(tmp_path / "parts", resume=True, model=ToyModel(dropout=0.3, seed=77), **setting())
    assert resumed.reason == "finished"
    assert same(weights(whole), weights(parts))
    assert timeless(tmp_path / "whole") == timeless(tmp_path / "parts")
    one, other = load(result.checkpoint), load(resumed.checkpoint)
    assert same(one.training, other.training)
    assert (resumed.tokens, resumed.best, resumed.scores) == (result.tokens, result.best, result.scores)
    names = [sorted(path.name for path in (tmp_path / run / "checkpoints").iterdir()) for run in ("whole", "parts")]
    assert names[0] == names[1]


def test_resumed_many_times(tmp_path: Path) -> None:
    whole, _ = train_toy(tmp_path / "whole", **setting())
    resume = False
    for _ in range(40):
        parts, result = train_toy(tmp_path / "parts", resume=resume, objective=StopsAt(1), **setting())
        resume = True
        if not result.interrupted:
            break
    assert result.reason == "finished"
    assert same(weights(whole), weights(parts))
    assert timeless(tmp_path / "whole") == timeless(tmp_path / "parts")


def test_a_crash_costs_only_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    class Crashes(ToyObjective):
        calls = 0

        def loss(self, model: nn.Module, prepared: Prepared) -> Loss:
            self.calls += model.training
            if self.calls == 17:
                raise RuntimeError("the lights went out")
            return super().loss(model, prepared)

    whole, _ = train_toy(tmp_path / "whole", **setting())
    with pytest.raises(RuntimeError, match="lights"):
        train_toy(tmp_path / "parts", objective=Crashes(), **setting())
    written = len(timeless(tmp_path / "parts"))
    with (tmp_path / "parts/metrics.jsonl").open("a") as file:
        file.write('{"kind": "torn')
    newest = latest(tmp_path / "parts/checkpoints")
    assert newest is not None
    assert load(newest).state["progress"]["records"] < written
    parts, _ = train_toy(tmp_path / "parts", resume=True, **setting())
    assert same(weights(whole), weights(parts))
    assert timeless(tmp_path / "whole") == timeless(tmp_path / "parts")


def test_sigterm_is_heard_and_handlers_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    _, result = train_toy(tmp_path, objective=StopsAt(5, signal.SIGTERM))
    assert result.interrupted
    assert result.step == 5
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_second_ctrl_c_insists(tmp_path: Path) -> None:
    class Twice(ToyObjective):
        def loss(self, model: nn.Module, prepared: Prepared) -> Loss:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            return super().loss(model, prepared)

    with pytest.raises(KeyboardInterrupt):
        train_toy(tmp_path, objective=Twice())


def test_wall_time_ends_a_run_that_can_go_on(tmp_path: Path) -> None:
    whole, _ = train_toy(tmp_path / "whole")
    _, stopped = train_toy(tmp_path / "parts", max_minutes=1e-9)
    assert (stopped.reason, stopped.step) == ("time", 1)
    parts, result = train_toy(tmp_path / "parts", resume=True)
    assert (result.reason, result.step) == ("finished", 12)
    assert same(weights(whole), weights(parts))


def test_a_finished_run_resumes_to_nothing_and_a_longer_one_goes_on(tmp_path: Path) -> None:
    whole, _ = train_toy(tmp_path / "whole", steps=18)
    done, _ = train_toy(tmp_path / "parts", steps=12)
    listener = Listener()
    again, result = train_toy(tmp_path / "parts", resume=True, steps=12, reporter=listener)
    assert (result.reason, result.step) == ("finished", 12)
    assert same(weights(done), weights(again))
    assert listener.records == []
    longer, _ = train_toy(tmp_path / "parts", resume=True, steps=18)
    assert same(weights(whole), weights(longer))


def test_resume_without_a_checkpoint_starts(tmp_path: Path) -> None:
    whole, _ = train_toy(tmp_path / "one")
    fresh, _ = train_toy(tmp_path / "two", resume=True)
    assert same(weights(whole), weights(fresh))


def test_prefetching_changes_nothing(tmp_path: Path) -> None:
    slow, _ = train_toy(tmp_path / "slow", prefetch=0)
    fast, _ = train_toy(tmp_path / "fast", prefetch=3)
    assert same(weights(slow), weights(fast))


def test_a_folder_in_use_is_not_overwritten(tmp_path: Path) -> None:
    train_toy(tmp_path)
    _, trainer = toy_trainer(tmp_path)
    with pytest.raises(UsageError, match="already holds a run"):
        trainer.run()


def test_resume_refuses_another_seed_or_model(tmp_path: Path) -> None:
    train_toy(tmp_path)
    with pytest.raises(OptionError, match="seed expects 1"):
        train_toy(tmp_path, resume=True, seed=2)
    with pytest.raises(ModelFolderError, match=r"expected shape \[11, 9\] for 'embedding.weight', found \[11, 8\]"):
        train_toy(tmp_path, resume=True, model=ToyModel(width=9))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_resume_in_lower_precision(tmp_path: Path, precision: str) -> None:
    whole, _ = train_toy(tmp_path / "whole", precision=precision)
    train_toy(tmp_path / "parts", precision=precision, objective=StopsAt(6))
    parts, _ = train_toy(tmp_path / "parts", resume=True, precision=precision)
    assert same(weights(whole), weights(parts))
