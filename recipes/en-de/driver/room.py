"""What may run at once: shares of the GPU, its memory, and clocks that want everything else to be still.

Pure functions of jobs; starts and stops nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driver.jobs import GPU, Job

SLACK = 1e-6
OVERTAKING = 3
"""how often a job that does not fit lets others begin before it; after that it waits for room, and all wait with it"""


@dataclass(frozen=True)
class Limits:
    """How much at once, how long, how often."""

    parallel: int = 8
    share: float = GPU
    memory: float = 130.0
    """gigabytes of the device that running jobs may take together: what an H200 has, and some air"""
    retries: int = 1
    stop_after: float | None = None
    """minutes until no more jobs are started and trainings are told to stop"""
    grace: float = 1.5
    """minutes that jobs then have to end"""
    patience: float = 0.0
    """minutes to wait, with nothing to do, for files that somebody else brings"""
    interrupt: bool = False
    """jobs that read a clock do not wait for an idle GPU: all others are held still for their time"""
    scores_first: bool = False
    """what has no checkpoints goes before trainings that wait too: what is scored, no end of time can take away"""


def admitted(
    ready: Sequence[Job], running: Sequence[Job], limits: Limits, overtaken: Mapping[Job, int] | None = None
) -> list[Job]:
    """Those of the ready jobs that may start now, in their order. One that does not fit lets such pass as could run
    beside it, but only a few times (`overtaken` says how often it did). An idle GPU takes any job, however large."""
    found: list[Job] = []
    kept_share = kept_memory = 0.0
    for job in ready:
        now = [*running, *found]
        if limits.interrupt and job.reads_clock and may_interrupt(job, now, limits):
            found.append(job)
            continue
        if len(now) >= limits.parallel:
            continue
        share, memory = sum(one.share for one in now), sum(one.gigabytes for one in now)
        crowded = max(share, kept_share if job.share else 0.0) + job.share > limits.share + SLACK
        full = job.gigabytes > 0 and max(memory, kept_memory) + job.gigabytes > limits.memory + SLACK
        if (share or memory) and (crowded or full):
            waited = overtaken is not None and overtaken.get(job, 0) >= OVERTAKING
            kept_share = max(kept_share, math.inf if waited else job.share)
            kept_memory = max(kept_memory, math.inf if waited else job.gigabytes)
            continue
        found.append(job)
    return found


def passed(ready: Sequence[Job], begun: Sequence[Job]) -> list[Job]:
    """Those of the ready jobs that one behind them was begun before."""
    last = max((place for place, job in enumerate(ready) if job in begun), default=-1)
    return [job for job in ready[: max(0, last)] if job not in begun]


def may_interrupt(job: Job, running: Sequence[Job], limits: Limits) -> bool:
    """Whether a job that reads a clock can have the GPU for itself while the others are held still, with all that they
    keep in its memory."""
    if any(one.reads_clock for one in running):
        return False
    return not running or sum(one.gigabytes for one in running) + job.gigabytes <= limits.memory + SLACK
