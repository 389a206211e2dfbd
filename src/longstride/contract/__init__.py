"""The few shapes everyone agrees on. Imports only torch; every other room may import it.

The modules that need torch are imported when one of their names is first asked for, so that errors and options can be
had without.
"""

from typing import TYPE_CHECKING

from longstride.contract.errors import (
    InputError,
    LongstrideError,
    ModelFolderError,
    OptionError,
    UsageError,
    WorkError,
)
from longstride.contract.options import option
from longstride.contract.symbols import DEFAULT_IDS, EOS, MASK, PAD, RESERVED, START, UNK, SpecialIds
from longstride.contract.trace import Event, Trace, TraceBuilder

if TYPE_CHECKING:
    from longstride.contract.decoding import (
        Decoded,
        Decoder,
        Finished,
        Hypothesis,
        Limits,
        Prefixes,
        PrefixLimits,
        Session,
        Source,
        Step,
    )
    from longstride.contract.running import DTYPES, Feeds, GraphSpec, Need, Precision, Program, Runner
    from longstride.contract.training import Batch, BatchSource, Factorisation, Likelihood, Loss, Objective, Prepared
else:

    def __getattr__(name: str) -> object:
        """A name of a module that needs torch."""
        if name in __all__:
            from longstride.contract import decoding, running, training

            for module in (decoding, running, training):
                if hasattr(module, name):
                    globals()[name] = found = getattr(module, name)
                    return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "DEFAULT_IDS",
    "DTYPES",
    "EOS",
    "MASK",
    "PAD",
    "RESERVED",
    "START",
    "UNK",
    "Batch",
    "BatchSource",
    "Decoded",
    "Decoder",
    "Event",
    "Factorisation",
    "Feeds",
    "Finished",
    "GraphSpec",
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
    "PrefixLimits",
    "Prefixes",
    "Prepared",
    "Program",
    "Runner",
    "Session",
    "Source",
    "SpecialIds",
    "Step",
    "Trace",
    "TraceBuilder",
    "UsageError",
    "WorkError",
    "option",
]
