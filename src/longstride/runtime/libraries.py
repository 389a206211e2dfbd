"""The one door to other people's libraries that would send something: nothing leaves the machine.

ONNX Runtime reports to its makers from the moment it is imported (it looks their server up, and keeps a number of the
device and a queue of events in the cache folder), unless it is told not to before; its API alone is too late. Hugging
Face's libraries ask their hub for files, and Ray counts its users. A person's own settings of these are not asked.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from longstride.contract import OptionError

SILENT = {
    "ORT_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""What they read in the environment."""


def silently(name: str) -> Any:
    """Import one of these libraries, or whatever brings one of them along."""
    os.environ.update(SILENT)
    found = importlib.import_module(name)
    if name == "onnxruntime":
        found.disable_telemetry_events()
    return found


class MissingPackageError(OptionError):
    """A package that is not installed here."""


def package(name: str, extra: str = "interop") -> Any:
    """Import a package of an extra, which is told to send nothing."""
    try:
        return silently(name)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] != name.partition(".")[0]:
            raise  # the package is there and something it needs is not: its own message says more
        raise MissingPackageError(
            f"This expects the package {name}, which is not installed here: pip install 'longstride[{extra}]'."
        ) from None
