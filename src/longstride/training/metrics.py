"""What a run tells about itself: records, the JSON-lines file they go to, and whoever else listens. Prints nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from longstride.contract import UsageError
from longstride.text.files import finite, written_whole


@dataclass(frozen=True)
class TrainingRecord:
    """Figures of the updates since the last such record."""

    step: int
    total_steps: int
    epoch: int
    loss: float
    """per target token, as minimised"""
    figures: Mapping[str, float]
    """what else the objective reports, per target token; `ppl` follows from `nll`"""
    learning_rate: float
    gradient_norm: float
    """of the last update, before clipping"""
    tokens: int
    """target tokens trained on since the run began"""
    bad_updates: int
    """left out because their gradients were not finite, since this process began"""
    tokens_per_second: float
    """real target tokens over the time since the last record, validation and checkpoints excluded"""
    elapsed: float
    remaining: float
    kind: str = field(default="training", init=False)


@dataclass(frozen=True)
class ValidationRecord:
    """One validation's outcome."""

    step: int
    epoch: int
    name: str
    value: float
    best: bool
    seconds: float
    figures: Mapping[str, float] = field(default_factory=dict)
    kind: str = field(default="validation", init=False)


Record = TrainingRecord | ValidationRecord


class Reporter(Protocol):
    """Hears what happens; the command line turns it into a progress line."""

    def record(self, record: Record) -> None:
        """Figures."""

    def message(self, text: str) -> None:
        """An event, in one sentence."""


class Silent:
    """A reporter that says nothing."""

    def record(self, record: Record) -> None:
        """Heard and forgotten."""

    def message(self, text: str) -> None:
        """Heard and forgotten."""


class TensorBoard:
    """Writes figures as TensorBoard events, and passes everything on to another reporter."""

    def __init__(self, folder: Path, step: int, other: Reporter) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UsageError(
                "tensorboard: expected the package tensorboard, found none; install longstride[tensorboard]."
            ) from None
        self._other = other
        self._writer: Any = SummaryWriter(str(folder), purge_step=step + 1)

    def record(self, record: Record) -> None:
        """Write one point per figure."""
        self._other.record(record)
        if isinstance(record, ValidationRecord):
            self._writer.add_scalar(f"validation/{record.name}", record.value, record.step)
        else:
            shown = {"loss": record.loss, **record.figures, "learning_rate": record.learning_rate}
            shown |= {"gradient_norm": record.gradient_norm, "tokens_per_second": record.tokens_per_second}
            for name, value in shown.items():
                self._writer.add_scalar(f"training/{name}", value, record.step)
        self._writer.flush()

    def message(self, text: str) -> None:
        """Events are not for plots."""
        self._other.message(text)


class MetricsFile:
    """A run's records as JSON lines. A resumed run cuts what was written after the checkpoint it goes on from."""

    def __init__(self, path: Path, keep: int = 0) -> None:
        """Open a file for appending, its first `keep` records kept and all others dropped."""
        lines = path.read_bytes().splitlines(keepends=True)[:keep] if keep and path.exists() else []
        whole = [line for line in lines if line.endswith(b"\n")]
        with written_whole(path) as temporary:
            temporary.write_bytes(b"".join(whole))
        self.records = len(whole)
        self._path = path

    def write(self, record: Record) -> None:
        """Append one record; what is not finite becomes null."""
        text = json.dumps({"kind": record.kind, **finite(asdict(record))}, allow_nan=False)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
        self.records += 1
