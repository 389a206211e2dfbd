"""One training loop for every objective; knows systems only by the contract."""

from longstride.training.averaging import average
from longstride.training.checkpoints import Checkpoint, Checkpoints, best, latest, listed, load
from longstride.training.distributed import Team, alone, join
from longstride.training.loop import Result, Trainer
from longstride.training.metrics import (
    MetricsFile,
    Record,
    Reporter,
    Silent,
    TrainingRecord,
    ValidationRecord,
    read_metrics,
)
from longstride.training.naming import WarmStart, freeze, load_weights, named_state, warm_start
from longstride.training.options import AdamOptions, TrainingOptions
from longstride.training.schedules import Schedule
from longstride.training.validation import Validator

__all__ = [
    "AdamOptions",
    "Checkpoint",
    "Checkpoints",
    "MetricsFile",
    "Record",
    "Reporter",
    "Result",
    "Schedule",
    "Silent",
    "Team",
    "Trainer",
    "TrainingOptions",
    "TrainingRecord",
    "ValidationRecord",
    "Validator",
    "WarmStart",
    "alone",
    "average",
    "best",
    "freeze",
    "join",
    "latest",
    "listed",
    "load",
    "load_weights",
    "named_state",
    "read_metrics",
    "warm_start",
]
