"""The one door to other people's libraries that would send something: nothing leaves the machine.

ONNX Runtime reports to its makers from the moment it is imported (it looks their server up, and keeps a number of the
device and a queue of events in the cache folder), unless it is told not to before; its API alone is too late. Hugging
Face's libraries ask their hub for files, and Ray counts its users. A person's own settings of these are not asked.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

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
