"""The few shapes everyone agrees on. Imports only torch; every other room may import it."""

from longstride.contract.decoding import Decoded, Decoder, Finished, Hypothesis, Limits, Session, Source, Step
from longstride.contract.errors import (
    InputError,
    LongstrideError,
    ModelFolderError,
    OptionError,
    UsageError,
    WorkError,
)
from longstride.contract.likelihood import Factorisation, Likelihood
from longstride.contract.memory import Need
from longstride.contract.options import option
from longstride.contract.running import DTYPES, Drawing, Feeds, Precision, Program, Runner
from longstride.contract.symbols import EOS, MASK, NEVER_GENERATED, PAD, RESERVED, START, UNK
from longstride.contract.trace import Event, Trace, TraceBuilder
from longstride.contract.training import Batch, BatchSource, Loss, Objective, Prepared

__all__ = [
    "DTYPES",
    "EOS",
    "MASK",
    "NEVER_GENERATED",
    "PAD",
    "RESERVED",
    "START",
    "UNK",
    "Batch",
    "BatchSource",
    "Decoded",
    "Decoder",
    "Drawing",
    "Event",
    "Factorisation",
    "Feeds",
    "Finished",
    "Hypothesis",
    "InputError",
    "Likelihood",
    "Limits",
    "LongstrideError",
    "Loss",
    "ModelFolderError",
    "Need",
    "Objective",
    "OptionError",
    "Precision",
    "Prepared",
    "Program",
    "Runner",
    "Session",
    "Source",
    "Step",
    "Trace",
    "TraceBuilder",
    "UsageError",
    "WorkError",
    "option",
]
