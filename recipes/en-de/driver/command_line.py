"""What every driver is told about running its stages. Knows no task."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from driver.jobs import GPU, GPU_AT_ONCE, Stage
from driver.mps import Service
from driver.room import Limits
from driver.schedule import Schedule


def add_scheduling(told: argparse.ArgumentParser) -> None:
    """How much at once, how long, how often; or only what there would be to do."""
    told.add_argument("--parallel", type=int, default=8, help="jobs at once, at most")
    told.add_argument(
        "--share",
        type=float,
        help=f"shares of the GPU given out at once (default: {GPU:g}, with MPS {GPU_AT_ONCE:g})",
    )
    told.add_argument("--memory", type=float, default=Limits.memory, help="gigabytes of the GPU given out at once")
    told.add_argument("--mps", action="store_true", help="run NVIDIA's MPS beside the jobs, where it works")
    told.add_argument(
        "--interrupt-for-timing",
        action="store_true",
        help="what reads a clock starts at once, and all else is held still until it has ended",
    )
    told.add_argument(
        "--hold",
        type=Path,
        help="hold all jobs still while this file is there; drivers that share it put it up while they read a clock",
    )
    told.add_argument("--scores-first", action="store_true", help="score what is trained before more is trained")
    told.add_argument("--retries", type=int, default=1, help="how often a failed job is tried again")
    told.add_argument("--stop-after", type=float, help="minutes after which trainings checkpoint and nothing is begun")
    told.add_argument(
        "--patience", type=float, default=0.0, help="minutes to wait, with nothing to do, for files that others bring"
    )
    told.add_argument("--list", action="store_true", help="say what there is to do and leave")
    told.add_argument("--commands", action="store_true", help="show the commands and leave")


def limits(asked: argparse.Namespace, at_once: bool = False) -> Limits:
    """What was asked for, as the schedule wants it; `at_once` where MPS runs."""
    return Limits(
        parallel=asked.parallel,
        share=asked.share if asked.share is not None else GPU_AT_ONCE if at_once else GPU,
        memory=asked.memory,
        retries=asked.retries,
        stop_after=asked.stop_after,
        patience=asked.patience,
        interrupt=asked.interrupt_for_timing,
        scores_first=asked.scores_first,
    )


def run(picked: Sequence[Stage], work: Path, asked: argparse.Namespace) -> int:
    """Run what is not done yet, beside MPS if asked for; the exit code."""
    service = Service(work / "mps")
    at_once = asked.mps and service.start(lambda text: print(text, flush=True))
    try:
        return Schedule(picked, work, limits(asked, at_once), environment=service.environment, hold=asked.hold).run()
    finally:
        service.stop()


def show_commands(picked: Sequence[Stage]) -> None:
    """Two lines per job."""
    for stage in picked:
        for job in stage.jobs:
            print(f"# {stage.name}/{job.name}\n{shlex.join(['python', *job.command])}")
