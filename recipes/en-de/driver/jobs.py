"""Jobs and stages: what is run, what it needs, what it makes, what it is guessed to cost. Runs nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

GPU = 1.2
"""Shares of the GPU that may be given out at once: a little more than one, since no job keeps it busy all the time."""
GPU_AT_ONCE = 2.6
"""The same where kernels of several processes run at once (MPS): six small trainings and an evaluation, or five base
ones. Measured on an H200, target tokens a second: five base trainings 1.3 M, one 0.68; five small ones 2.3 M, seven
2.1, one 1.7."""


@dataclass(frozen=True)
class Job:
    """One command."""

    name: str
    """unique in its stage; names its log and its mark"""
    command: tuple[str, ...]
    """what follows `python`"""
    minutes: float
    """guessed, on one H200 that is full (estimates.py)"""
    share: float
    """of the GPU, 1 for all of it; infinite for what reads a clock"""
    gigabytes: float = 0.0
    """of the GPU's memory, at most"""
    needs: tuple[Path, ...] = ()
    """files, models or corpora that must be there before it can start"""
    makes: tuple[Path, ...] = ()
    whole: bool = True
    """what it makes is there only when all of its work is done"""
    checkpoints: bool = False
    """goes on where it was when it is interrupted and run again"""
    last: bool = False
    """runs when all else that can run has"""

    @property
    def reads_clock(self) -> bool:
        """Whether what it finds is a time, so that nothing may run beside it."""
        return math.isinf(self.share)

    @property
    def missing(self) -> list[Path]:
        """What it waits for."""
        return [path for path in self.needs if not there(path)]

    @property
    def made(self) -> bool:
        """Whether what it would make is there already, as from an earlier run or among what was given."""
        return self.whole and bool(self.makes) and all(there(path) for path in self.makes)


@dataclass(frozen=True)
class Stage:
    """Jobs that belong together; they run side by side as far as the GPU allows."""

    name: str
    family: str
    jobs: tuple[Job, ...]
    partial: bool = False
    """only some of its jobs were chosen"""

    @property
    def minutes(self) -> float:
        """Guessed wall-clock time where nothing else runs; kernels at once (MPS)."""
        # Beside a job that takes more than half there is no room for another of its kind.
        shared = sum(
            job.minutes * (job.share / GPU_AT_ONCE if job.share <= GPU_AT_ONCE / 2 else 1.0) for job in self.jobs
        )
        return round(max([shared, *(job.minutes for job in self.jobs)]), 1)

    def needs(self, stages: Sequence[Stage]) -> list[str]:
        """The stages that make what this one needs."""
        wanted = {path for job in self.jobs for path in job.needs}
        makers = [
            one for one in stages if one is not self and wanted & {path for job in one.jobs for path in job.makes}
        ]
        return [one.name for one in makers]


def there(path: Path) -> bool:
    """A file that exists; of a folder, a finished model (its own or one inside a run's folder) or distilled corpus."""
    if path.is_file():
        return True
    return any((path / proof).is_file() for proof in ("config.json", "model/config.json", "manifest.json"))


def chosen(stages: Sequence[Stage], only: Sequence[str]) -> list[Stage]:
    """What `--only` names, in that order: stages, families, or STAGE/JOB with patterns; all where it names none."""
    if not only:
        return list(stages)
    names, families = {one.name for one in stages}, {one.family for one in stages}
    taken: set[tuple[str, str]] = set()
    found = []
    for text in only:
        name, _, pattern = text.partition("/")
        picked = [one for one in stages if (one.name if name in names else one.family) == name]
        jobs = [(one, job) for one in picked for job in one.jobs if fnmatchcase(job.name, pattern or "*")]
        if not jobs:
            raise ValueError(
                f"there is no stage {text!r}; stages are {', '.join(sorted(names))}, families "
                f"{', '.join(sorted(families - names))}"
            )
        for one in picked:
            mine = tuple(job for other, job in jobs if other is one and (one.name, job.name) not in taken)
            taken |= {(one.name, job.name) for job in mine}
            if mine:
                found.append(Stage(one.name, one.family, mine, partial=len(mine) < len(one.jobs)))
    return found
