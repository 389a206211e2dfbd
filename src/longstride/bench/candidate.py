"""What is measured: a decoder with its limits, and all that a record must say about it. Sees only the contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from longstride.bench.machine import MemoryProbe
from longstride.bench.record_parts import ModelTag, Role
from longstride.contract import Decoder, Limits, OptionError


@dataclass(frozen=True)
class Captured:
    """What a runtime has captured so far, and what that holds now."""

    graphs: int
    seconds: float
    graph_bytes: int
    table_bytes: int


@dataclass(frozen=True)
class Candidate:
    """One decoder in a run, beside others. Names are unique within a run."""

    name: str
    decoder: Decoder
    limits: Limits = field(default_factory=Limits)
    role: Role = "candidate"
    model: ModelTag = field(default_factory=lambda: ModelTag(""))
    device: str = "cpu"
    precision: str = "fp32"
    runtime: str = "eager"
    synchronize: Callable[[], None] = lambda: None
    """waits until the device is done; called before every reading of the clock"""
    memory: MemoryProbe | None = None
    """of the device; host memory is always probed"""
    captured: Callable[[], Captured] | None = None
    """asks the runtime, where it captures steps; candidates that share one are told apart by asking before and after"""
    sample: int | None = None
    """a slow one may decode only a fixed sample of this many sentences; its record says so"""
    passes: int | None = None
    """a slow one may be timed in fewer passes"""
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    """what a fair reader wants to know: versions, threads, compilation time"""


def check_candidates(candidates: Sequence[Candidate], reference: str | None) -> None:
    """Refuse a line-up whose records could not be told apart or compared."""
    names = [candidate.name for candidate in candidates]
    if not names:
        raise OptionError("A run expects at least one candidate, found none.")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(f"A run expects candidates with different names, found {twice[0]!r} twice.")
    if reference is not None and reference not in names:
        raise OptionError(f"reference expects one of {', '.join(names)}, found {reference!r}.")
