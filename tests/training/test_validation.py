"""Validation, early stopping, best checkpoints and what the metrics file says of them."""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from longstride.contract import OptionError, UsageError, WorkError
from longstride.training.checkpoints import listed
from longstride.training.metrics import MetricsFile, TrainingRecord, ValidationRecord
from longstride.training.prefetch import generator_for
from longstride.training.validation import Validator
from tests.training.toys import (
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


def scripted(*values: float) -> Callable[[nn.Module], float]:
    remaining = list(values)
    return lambda model: remaining.pop(0)


def test_loss_on_held_out_data_is_per_token(tmp_path: Path) -> None:
    held_out, objective = ToySource(batches=3, seed=4), ToyObjective()
    model, trainer = toy_trainer(tmp_path, validation=held_out)
    trainer.run()
    total, tokens = 0.0, 0
    with torch.no_grad():
        for index, batch in enumerate(held_out.epoch(0)):
            prepared = objective.prepare(batch, generator_for(1, 0, index))
            total += float(objective.loss(model.eval(), prepared).total)
            tokens += prepared.tokens
    last = [r for r in read_metrics(tmp_path / "metrics.jsonl") if r["kind"] == "validation"][-1]
    assert last["step"] == 12
    assert last["value"] == pytest.approx(total / tokens, rel=1e-6)
    assert last["figures"]["ppl"] == pytest.approx(math.exp(total / tokens), rel=1e-6)


def test_validators_see_the_model_in_evaluation_mode_and_leave_training_alone(tmp_path: Path) -> None:
    seen: list[tuple[bool, bool]] = []

    def look(model: nn.Module) -> float:
        seen.append((model.training, torch.is_grad_enabled()))
        torch.rand(3)
        return 0.0

    plain, _ = train_toy(tmp_path / "plain")
    looked, _ = train_toy(tmp_path / "looked", validators=[Validator("look", 2, True, look)])
    assert seen == [(False, False)] * 6
    assert same(weights(plain), weights(looked))
    assert looked.training


@pytest.mark.parametrize(("higher", "values"), [(True, (1, 3, 2, 3, 9)), (False, (9, 7, 8, 7, 1))])
def test_early_stopping(tmp_path: Path, higher: bool, values: tuple[float, ...]) -> None:
    validator = Validator("score", 2, higher, scripted(*values))
    _, result = train_toy(tmp_path, steps=50, validators=[validator], monitor="score", patience=2)
    assert (result.reason, result.step) == ("patience", 8)
    assert result.best == {"score": values[1]}
    assert max(listed(tmp_path / "checkpoints")) == 8


def test_the_best_checkpoints_are_kept_and_averaged(tmp_path: Path) -> None:
    validator = Validator("score", 2, True, scripted(5, 1, 7, 2, 3, 4))
    _, result = train_toy(
        tmp_path,
        validators=[validator],
        monitor="score",
        keep=1,
        keep_best=2,
        average="best",
        average_count=2,
        average_span=0.5,
        checkpoint_every=100,
    )
    assert list(listed(tmp_path / "checkpoints")) == [2, 6, 12]
    assert result.averaged == (2, 6)


def test_a_score_that_is_no_number_is_never_best(tmp_path: Path) -> None:
    validator = Validator("score", 2, True, scripted(math.nan, 1, math.nan, 2, 3, 4))
    _, result = train_toy(tmp_path, validators=[validator], monitor="score", keep_best=9)
    assert result.best == {"score": 4}


def test_validations_at_the_end_of_epochs(tmp_path: Path) -> None:
    listener = Listener()
    validator = Validator("score", 0, True, scripted(1, 2, 3))
    _, result = train_toy(
        tmp_path,
        steps=0,
        epochs=2,
        accumulation=3,
        checkpoint_every=0,
        reporter=listener,
        validators=[validator],
        validation=ToySource(batches=1),
    )
    assert result.step == 6  # seven batches in three updates, twice
    told = [(r.step, r.epoch, r.name) for r in listener.records if isinstance(r, ValidationRecord)]
    assert told == [(3, 1, "loss"), (3, 1, "score"), (6, 2, "loss"), (6, 2, "score")]
    assert list(listed(tmp_path / "checkpoints")) == [3, 6]


def test_training_records(tmp_path: Path) -> None:
    listener = Listener()
    _, result = train_toy(tmp_path, reporter=listener, steps=7, model=ToyModel())
    records = [r for r in listener.records if isinstance(r, TrainingRecord)]
    assert [record.step for record in records] == [3, 6, 7]
    tokens = [int(ToySource().batch(0, index).target_lengths.sum()) for index in range(7)]
    assert [record.tokens for record in records] == [sum(tokens[:3]), sum(tokens[:6]), sum(tokens)]
    assert result.tokens == sum(tokens)
    for record in records:
        assert record.figures["ppl"] == pytest.approx(math.exp(record.loss))
        assert record.gradient_norm > 0
        assert record.tokens_per_second > 0
    assert records[-1].remaining == 0
    written = read_metrics(tmp_path / "metrics.jsonl")
    assert [record["loss"] for record in written] == [record.loss for record in records]
    assert result.steady_tokens_per_second is None


def test_metrics_are_cut_to_what_the_checkpoint_knew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    for step in range(5):
        file.write(ValidationRecord(step, 0, "score", float(step), False, 0.0))
    with path.open("a") as torn:
        torn.write('{"step": 5')
    assert len(read_metrics(path)) == 5
    again = MetricsFile(path, keep=3)
    assert again.records == 3
    again.write(ValidationRecord(9, 0, "score", math.inf, False, 0.0))
    assert [(r["step"], r["value"]) for r in read_metrics(path)] == [(0, 0.0), (1, 1.0), (2, 2.0), (9, None)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patience": 1}, r"monitor expects one of the validations there are \(none\), found 'loss'"),
        ({"validators": [Validator("loss", 1, True, scripted())]}, "none of them 'loss'"),
        ({"validators": [Validator("a", 1, True, scripted())] * 2}, "names of their own"),
    ],
)
def test_wrong_validators(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        toy_trainer(tmp_path, **changes)


def test_errors_of_the_data_reach_the_caller(tmp_path: Path) -> None:
    class Broken(ToySource):
        def batches_in(self, number: int) -> int:
            return self.batches + 1

    with pytest.raises(WorkError, match="epoch 0 of the training data expects 8 batches, found fewer"):
        train_toy(tmp_path / "a", data=Broken())
    with pytest.raises(WorkError, match="at least one batch"):
        train_toy(tmp_path / "b", data=ToySource(batches=0))


def test_tensorboard_is_asked_for_by_name_when_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match=r"install longstride\[tensorboard\]"):
        train_toy(tmp_path, tensorboard=True)


def test_tensorboard_gets_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points: list[tuple[str, int]] = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int) -> None:
            assert (Path(folder).name, purge_step) == ("tensorboard", 1)

        def add_scalar(self, name: str, value: float, step: int) -> None:
            points.append((name, step))

        def flush(self) -> None: ...

    fake = types.ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    listener = Listener()
    train_toy(tmp_path, tensorboard=True, validation=ToySource(batches=1), reporter=listener)
    assert {("training/loss", 3), ("training/ppl", 12), ("validation/loss", 12)} <= set(points)
    assert listener.records
