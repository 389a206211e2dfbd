"""What every driver is told about running its stages. Knows no task."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence

from driver.jobs import GPU, Stage
from driver.schedule import Limits


def add_scheduling(told: argparse.ArgumentParser) -> None:
    """How much at once, how long, how often; or only what there would be to do."""
    told.add_argument("--parallel", type=int, default=8, help="jobs at once, at most")
    told.add_argument("--share", type=float, default=GPU, help="shares of the GPU given out at once")
    told.add_argument("--retries", type=int, default=1, help="how often a failed job is tried again")
    told.add_argument("--stop-after", type=float, help="minutes after which trainings checkpoint and nothing is begun")
    told.add_argument("--list", action="store_true", help="say what there is to do and leave")
    told.add_argument("--commands", action="store_true", help="show the commands and leave")


def limits(asked: argparse.Namespace) -> Limits:
    """What was asked for, as the schedule wants it."""
    return Limits(asked.parallel, asked.share, asked.retries, asked.stop_after)


def show_commands(picked: Sequence[Stage]) -> None:
    """Two lines per job."""
    for stage in picked:
        for job in stage.jobs:
            print(f"# {stage.name}/{job.name}\n{shlex.join(['python', *job.command])}")
