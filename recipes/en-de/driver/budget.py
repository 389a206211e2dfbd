"""How many updates of a training fit into the seconds that are left. Arithmetic alone; knows no clock and no file.

A learning rate that falls to zero at the last update needs the number of updates before the first one. A training has
`seconds` until all trainings must have ended, and shares the GPU with others that need `others` seconds of it until
they are done, whichever of them has it when. So it can have

    seconds - end - max(start, others)

seconds of the GPU: while it starts, others have it anyway. Of these it takes a `part`, where something comes after it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

CERTAIN = 0.93
"""share of the seconds that is planned with; estimates are wrong by some percent, and what is cut off is lost"""


@dataclass(frozen=True)
class Cost:
    """What a training takes."""

    update: float
    """seconds of the GPU"""
    start: float = 30.0
    """seconds until the first update: import, load, compile"""
    end: float = 15.0
    """seconds after the last one: average, validate, write"""
    least: int = 600
    """updates; what is trained for less is not worth a race"""
    most: int = 20_000


def updates(seconds: float, cost: Cost, others: float = 0.0, part: float = 1.0) -> int:
    """How many fit, `most` at most; 0 where that is less than `least`."""
    free = (seconds - cost.end - max(cost.start, others)) * part * CERTAIN
    found = min(cost.most, math.floor(max(0.0, free) / cost.update))
    return found if found >= cost.least else 0


def left(planned: int, reached: int, update: float) -> float:
    """Seconds of the GPU that another training still needs."""
    return max(0, planned - reached) * update
