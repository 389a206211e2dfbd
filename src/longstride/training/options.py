"""Every choice of a training run that is not about the model or the data, as frozen dataclasses checked when made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from longstride.contract import OptionError, option
from longstride.training.schedules import Schedule


@dataclass(frozen=True)
class AdamOptions:
    """Adam with decoupled weight decay."""

    beta1: float = option(0.9, "Decay of the mean of gradients.")
    beta2: float = option(0.98, "Decay of the mean of squared gradients.")
    eps: float = option(1e-9, "Added to the root of the squared gradients' mean.")
    weight_decay: float = option(0.0, "Decoupled decay of matrices and tables (vectors such as biases are left alone).")

    def __post_init__(self) -> None:
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise OptionError(f"optimizer.beta1 and beta2 expect 0 to below 1, found {self.beta1} and {self.beta2}.")
        if self.eps <= 0 or self.weight_decay < 0:
            raise OptionError(
                f"optimizer.eps expects more than 0 and weight_decay 0 or more, "
                f"found {self.eps} and {self.weight_decay}."
            )


@dataclass(frozen=True)
class TrainingOptions:
    """How long, how fast and how carefully to train."""

    steps: int = option(0, "Stop after this many updates (0: as epochs says).")
    epochs: int = option(0, "Stop after this many passes over the data (0: as steps says).")
    max_minutes: float = option(0.0, "Stop with a checkpoint when this wall time is used; --resume goes on (0: never).")
    accumulation: int = option(1, "Batches per update and process.")
    clip: float = option(0.0, "Largest global gradient norm (0: no clipping).")
    schedule: Schedule = option(help="Learning rate.", factory=Schedule)
    optimizer: AdamOptions = option(help="Adam.", factory=AdamOptions)
    precision: Literal["fp32", "bf16", "fp16"] = option("fp32", "Autocast precision; weights and Adam stay in fp32.")
    compile: Literal["none", "layers", "loss"] = option(
        "none", "torch.compile: layers compiles each repeated unit once (quick start), loss the whole objective."
    )
    seed: int = option(1, "Seeds data order, objective and dropout.")
    freeze: tuple[str, ...] = option(
        (), "Parameters that are not trained, by name: globs, or regular expressions as re:..."
    )
    unused_parameters: bool = option(
        False, "Some trained parameters sit out some updates (asked of data-parallel runs)."
    )
    validate_every: int = option(0, "Updates between validations by loss (0: at the end of each epoch).")
    monitor: str = option("loss", "The validation that decides what is best and when to stop.")
    patience: int = option(0, "Stop after this many validations of the monitor without a new best (0: never).")
    checkpoint_every: int = option(0, "Updates between checkpoints (0: at the end of each epoch).")
    keep: int = option(2, "How many of the newest checkpoints to keep.")
    keep_best: int = option(0, "How many of the best checkpoints to keep besides.")
    average: Literal["none", "last", "best"] = option("none", "Which checkpoints' weights to average when done.")
    average_count: int = option(5, "How many checkpoints to average.")
    log_every: int = option(50, "Updates between lines of the metrics file.")
    tensorboard: bool = option(False, "Write TensorBoard events too (needs the tensorboard extra).")
    prefetch: int = option(4, "Updates whose batches are prepared ahead by a background thread (0: none).")
    max_bad_updates: int = option(10, "Give up after this many non-finite updates in a row (fp16: at least 40).")

    def __post_init__(self) -> None:
        if not self.steps and not self.epochs:
            raise OptionError("steps or epochs is required: both are 0, so training would never end.")
        for name, least in _LEAST.items():
            if (value := getattr(self, name)) < least:
                raise OptionError(f"{name} expects {least} or more, found {value}.")
        kept = {"none": self.average_count, "last": self.keep, "best": self.keep_best}[self.average]
        if kept < self.average_count:
            held = "keep" if self.average == "last" else "keep_best"
            raise OptionError(
                f"{held} expects at least average_count ({self.average_count}) checkpoints to average, found {kept}."
            )


_LEAST = {
    "steps": 0,
    "epochs": 0,
    "max_minutes": 0,
    "accumulation": 1,
    "clip": 0,
    "seed": 0,
    "validate_every": 0,
    "patience": 0,
    "checkpoint_every": 0,
    "keep": 1,
    "keep_best": 0,
    "average_count": 1,
    "log_every": 1,
    "prefetch": 0,
    "max_bad_updates": 1,
}
