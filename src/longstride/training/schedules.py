"""How the learning rate follows the update number: five closed forms, each a pure function. Knows no optimizer.

Updates are counted from 1: `rate(1)` is the rate of the first update and `rate(total_steps)` that of the last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from longstride.contract import OptionError, option
from longstride.contract.options import Options


@dataclass(frozen=True)
class Schedule(Options):
    """The learning rate as a function of the update number."""

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

    def rate(self, step: int) -> float:
        """The learning rate of update number `step` (1 is the first)."""
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
