"""A tiny model, objective and data source, all of them deterministic, for the tests of the training loop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from longstride.contract import Batch, BatchSource, Loss, Objective, Prepared
from longstride.training.loop import Result, Trainer
from longstride.training.metrics import Record
from longstride.training.options import Schedule, TrainingOptions

VOCABULARY = 11


class ToyLayer(nn.Module):
    compile_unit = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + torch.relu(self.linear(hidden))


class ToyModel(nn.Module):
    """Predicts each target token from the source token at its place; embedding and output share their weights."""

    def __init__(self, dropout: float = 0.0, width: int = 8, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(VOCABULARY, width)
            self.layers = nn.ModuleList(ToyLayer(width) for _ in range(2))
            self.output = nn.Linear(width, VOCABULARY)
        self.output.weight = self.embedding.weight
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("scale", torch.tensor(1.5))

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.dropout(self.embedding(ids) * self.scale)
        for layer in self.layers:
            hidden = self.dropout(layer(hidden))
        return self.output(hidden)


class ToySource(BatchSource):
    """Batches of `rows` random pairs of ragged lengths; the target is the source plus one. No two epochs are alike."""

    def __init__(self, batches: int = 7, rows: int = 4, longest: int = 6, seed: int = 0) -> None:
        self.batches, self.rows, self.longest, self.seed = batches, rows, longest, seed

    def epoch(self, number: int, skip: int = 0) -> Iterator[Batch]:
        for index in range(skip, self.batches):
            yield self.batch(number, index)

    def batches_in(self, number: int) -> int:
        return self.batches

    def batch(self, epoch: int, index: int) -> Batch:
        rng = torch.Generator().manual_seed(1000 * self.seed + 100 * epoch + index)
        lengths = torch.randint(1, self.longest + 1, (self.rows,), generator=rng)
        source = torch.randint(5, VOCABULARY - 1, (self.rows, self.longest), generator=rng)
        source = source.masked_fill(torch.arange(self.longest) >= lengths[:, None], 0)
        target = torch.where(source > 0, source + 1, 0)
        return Batch(source, target, lengths, lengths, torch.arange(self.rows))


class ToyObjective(Objective):
    """Cross-entropy with some source tokens replaced at random in `prepare`."""

    def __init__(self, noise: float = 0.2) -> None:
        self.noise = noise

    def prepare(self, batch: Batch, rng: torch.Generator, progress: float = 1.0) -> Prepared:
        replaced = torch.rand(batch.source.shape, generator=rng) < self.noise
        source = torch.where(replaced & (batch.source > 0), 1, batch.source)
        return Prepared({"source": source, "target": batch.target}, int(batch.target_lengths.sum()))

    def loss(self, model: nn.Module, prepared: Prepared) -> Loss:
        logits = model(prepared.tensors["source"]).float().flatten(0, 1)
        target = prepared.tensors["target"].flatten()
        total = nn.functional.cross_entropy(logits, target, ignore_index=0, reduction="sum")
        return Loss(total, {"nll": total})


class Listener:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.messages: list[str] = []

    def record(self, record: Record) -> None:
        self.records.append(record)

    def message(self, text: str) -> None:
        self.messages.append(text)


def toy_options(**changes: Any) -> TrainingOptions:
    defaults: dict[str, Any] = {
        "steps": 12,
        "log_every": 3,
        "schedule": Schedule(kind="constant", peak=0.01, warmup=2),
        "keep": 50,
        "checkpoint_every": 4,
    }
    return TrainingOptions(**(defaults | changes))


def toy_trainer(folder: Path, model: ToyModel | None = None, **changes: Any) -> tuple[ToyModel, Trainer]:
    model = model or ToyModel(dropout=0.3)
    keywords = {name: changes.pop(name) for name in ("validation", "validators", "reporter", "team") if name in changes}
    data = changes.pop("data", None) or ToySource()
    objective = changes.pop("objective", None) or ToyObjective()
    return model, Trainer(model, objective, data, toy_options(**changes), folder, **keywords)


def train_toy(folder: Path, resume: bool = False, **changes: Any) -> tuple[ToyModel, Result]:
    model, trainer = toy_trainer(folder, **changes)
    return model, trainer.run(resume)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


TIMING = ("tokens_per_second", "elapsed", "remaining", "seconds")
"""Fields of records that measure the clock: two runs alike in everything else may differ in these."""


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics file; an unfinished last line is left out."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
