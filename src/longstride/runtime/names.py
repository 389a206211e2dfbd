"""Names of runtimes and precisions, which can be checked before PyTorch is imported."""

from __future__ import annotations

from longstride.contract.errors import OptionError
from longstride.contract.suggestions import meant

AUTO = "auto"
"""The fastest that there is here."""
RUNTIMES = ("eager", "native", "onnx", "cuda-graph")
PRECISIONS = (AUTO, "fp32", "fp16", "bf16", "fp64", "int8")


def check_runtime(name: str) -> None:
    """Refuse one that there is not."""
    if name not in (AUTO, *RUNTIMES):
        near, there = meant(name, (AUTO, *RUNTIMES)), ", ".join(RUNTIMES)
        raise OptionError(f"There is no runtime {name!r}{near} in this version. Available: auto, {there}.")


def check_precision(name: str, option: str = "precision") -> None:
    """Refuse one that there is not; `option` is how whoever asked for it calls it."""
    if name not in PRECISIONS:
        near = meant(name, PRECISIONS)
        raise OptionError(f"{option} expects auto, fp32, fp16, bf16, fp64 or int8, found {name!r}{near}.")
