"""Every choice of a training run that is not about the model or the data, as frozen dataclasses checked when made."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from longstride.contract import OptionError, option
from longstride.contract.options import Options


@dataclass(frozen=True)
class Schedule(Options):
    """The learning rate as a function of the update number: `rate(1)` is that of the first update."""

    kind: Literal["noam", "inverse-sqrt", "linear", "cosine", "constant"] = option(
        "inverse-sqrt", "Shape after the warm-up; linear reaches the floor at the last update and suits short runs."
    )
    peak: float = option(7e-4, "Rate at the end of the warm-up (all kinds but noam).", above=0, most=1000)
    warmup: int = option(4000, "Updates over which the rate rises in a straight line from zero.", least=0, most=10**9)
    total_steps: int = option(
        0, "Update at which linear and cosine reach the floor; 0: the run's last.", least=0, most=10**9
    )
    floor: float = option(0.0, "After the warm-up the rate never falls below this.", least=0, most=1000)
    scale: float = option(1.0, "Noam's own factor, before width^-0.5.", above=0, most=10**6)
    width: int = option(512, "Noam's model width.", least=1, most=65536)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind == "noam" and self.warmup < 1:
            raise OptionError(f"schedule.warmup expects 1 or more with noam, found {self.warmup}.")
        if self.kind != "noam" and self.floor > self.peak:
            raise OptionError(f"schedule.floor expects at most the peak {self.peak}, found {self.floor}.")

    def for_run(self, steps: int) -> Schedule:
        """The same schedule, ending with a run of `steps` updates unless it names its own end."""
        return self if self.total_steps else replace(self, total_steps=steps)

    def rate(self, step: float) -> float:
        """The learning rate of update number `step` (1 is the first; there may be places between two)."""
        if self.kind == "noam":
            height = self.scale / math.sqrt(self.width)
            if step <= self.warmup:
                return height * step / (self.warmup * math.sqrt(self.warmup))
            return max(self.floor, height / math.sqrt(step))
        if step < self.warmup:
            return self.peak * step / self.warmup
        if self.kind == "constant":
            return self.peak
        if self.kind == "inverse-sqrt":
            return max(self.floor, self.peak * math.sqrt(max(self.warmup, 1) / max(step, 1)))
        if not self.total_steps:
            raise OptionError(f"schedule.total_steps is needed by the {self.kind} schedule, found 0.")
        gone = min(1.0, (step - self.warmup) / max(1, self.total_steps - self.warmup))
        remaining = 1.0 - gone if self.kind == "linear" else 0.5 * (1.0 + math.cos(math.pi * gone))
        return self.floor + (self.peak - self.floor) * remaining


@dataclass(frozen=True)
class AdamOptions(Options):
    """Adam with decoupled weight decay."""

    beta1: float = option(0.9, "Decay of the mean of gradients.", least=0, below=1)
    beta2: float = option(0.98, "Decay of the mean of squared gradients.", least=0, below=1)
    eps: float = option(1e-9, "Added to the root of the squared gradients' mean.", above=0, most=1)
    weight_decay: float = option(
        0.0, "Decoupled decay of matrices and tables (vectors such as biases are left alone).", least=0, most=1000
    )


@dataclass(frozen=True)
class TrainingOptions(Options):
    """How long, how fast and how carefully to train."""

    steps: int = option(0, "Stop after this many updates (0: as epochs says).", least=0, most=10**9)
    epochs: int = option(0, "Stop after this many passes over the data (0: as steps says).", least=0, most=10**9)
    max_minutes: float = option(
        0.0, "Stop with a checkpoint when this wall time is used; --resume goes on (0: never).", least=0, most=10**9
    )
    accumulation: int = option(1, "Batches per update and process.", least=1, most=10**6)
    clip: float = option(0.0, "Largest global gradient norm (0: no clipping).", least=0, most=10**9)
    schedule: Schedule = option(help="Learning rate.", factory=Schedule)
    optimizer: AdamOptions = option(help="Adam.", factory=AdamOptions)
    precision: Literal["fp32", "bf16", "fp16"] = option("fp32", "Autocast precision; weights and Adam stay in fp32.")
    compile: Literal["none", "layers", "loss"] = option(
        "none", "torch.compile: layers compiles each repeated unit once (quick start), loss the whole objective."
    )
    seed: int = option(1, "Seeds data order, objective and dropout.", least=0, most=2**32 - 1)
    freeze: tuple[str, ...] = option(
        (), "Parameters that are not trained, by name: globs, or regular expressions as re:..."
    )
    unused_parameters: bool = option(
        False, "Some trained parameters sit out some updates (asked of data-parallel runs)."
    )
    validate_every: int = option(
        0, "Updates between validations by loss (0: at the end of each epoch).", least=0, most=10**9
    )
    monitor: str = option("loss", "The validation that decides what is best and when to stop.")
    patience: int = option(
        0, "Stop after this many validations of the monitor without a new best (0: never).", least=0, most=10**9
    )
    checkpoint_every: int = option(0, "Updates between checkpoints (0: at the end of each epoch).", least=0, most=10**9)
    keep: int = option(2, "How many of the newest checkpoints to keep.", least=1, most=10**6)
    keep_best: int = option(0, "How many of the best checkpoints to keep besides.", least=0, most=10**6)
    average: Literal["none", "last", "best"] = option("none", "Which checkpoints' weights to average when done.")
    average_count: int = option(5, "How many checkpoints to average.", least=1, most=10**6)
    average_span: float = option(
        0.25, "How much of a run averaged checkpoints may lie apart: early ones spoil the mean.", above=0, most=1
    )
    log_every: int = option(50, "Updates between lines of the metrics file.", least=1, most=10**9)
    tensorboard: bool = option(False, "Write TensorBoard events too (needs the tensorboard extra).")
    prefetch: int = option(
        4, "Updates whose batches are prepared ahead by a background thread (0: none).", least=0, most=1000
    )
    max_bad_updates: int = option(
        10, "Give up after this many non-finite updates in a row (fp16: at least 40).", least=1, most=10**9
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.steps and not self.epochs:
            raise OptionError("steps or epochs is required: both are 0, so training would never end.")
        kept = {"none": self.average_count, "last": self.keep, "best": self.keep_best}[self.average]
        if kept < self.average_count:
            held = "keep" if self.average == "last" else "keep_best"
            raise OptionError(
                f"{held} expects at least average_count ({self.average_count}) checkpoints to average, found {kept}."
            )
