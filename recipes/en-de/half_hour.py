"""Verifier, heads and drafter of the English-German task on one GPU, and their times, in half an hour.

    python recipes/en-de/half_hour.py --work runs/half-hour [--data data/en-de] [--minutes 28] [--dry]

Asks nobody anything. Trainings end --clocks minutes before the end, with what they have: heads and drafter are trained
for as many updates as fit. Then, with nothing beside, whatever is there is raced, scored and profiled. What is finished
lies in WORK/parcels, in pieces that can be copied off at once; parcels/ready.txt names them. Run again, it goes on
where it was, with as many minutes anew. Stages are in driver/half_hour_*.py; docs/reproduction.md tells more.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from driver.command_line import show_commands
from driver.commands import Task
from driver.first_lines import first_lines
from driver.half_hour_clocks import clocks
from driver.half_hour_stages import PACKED, Plan, gathering, keeping, making, packing
from driver.jobs import GPU, GPU_AT_ONCE, there
from driver.mps import Service
from driver.room import Limits
from driver.schedule import Schedule

GRACE = 0.3
"""minutes that trainings have to leave a checkpoint, and clocks to end"""
GATHERING = 0.5
"""minutes kept for the page and the last parcel"""
DRY_LINES = {"train": 2000, "valid": 16, "test": 4}
DRY_DISTILLED = 60


def parser() -> argparse.ArgumentParser:
    """The command line."""
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("--work", type=Path, default=Path("runs/half-hour"), help="folder for all that is made")
    told.add_argument("--data", type=Path, default=Path("data/en-de"), help="folder of the corpus")
    told.add_argument("--minutes", type=float, default=28.0, help="from now until all has ended")
    told.add_argument("--clocks", type=float, default=7.0, help="minutes at the end for what is timed and gathered")
    told.add_argument("--lines", type=int, default=Plan.lines, help="of the training set that are distilled")
    told.add_argument("--processes", type=int, default=Plan.processes, help="that distil")
    told.add_argument("--sample", type=int, default=Plan.sample, help="sentences of the race")
    told.add_argument("--passes", type=int, default=Plan.passes, help="of the race")
    told.add_argument("--set", action="append", default=[], help="name=value for every training run")
    told.add_argument(
        "--dry", action="store_true", help="tiny models on a CPU, a few updates: to see it all go through"
    )
    told.add_argument("--commands", action="store_true", help="show the commands and leave")
    return told


def planned(asked: argparse.Namespace, until: float) -> Plan:
    """What was asked for, where trainings must have ended at `until`."""
    how = ("fp32", "eager") if asked.dry else ("fp16", "cuda-graph")
    data = asked.work / "text" if asked.dry else asked.data
    task = Task(asked.work, data, (), tuple(asked.set), *how)
    plan = Plan(task, until, asked.lines, asked.processes, asked.sample, asked.passes, dry=asked.dry)
    if asked.dry:
        return replace(plan, lines=DRY_DISTILLED, processes=1, sample=2, passes=1, batched=4, sizes=(1, 4))
    return plan


def cut(data: Path, target: Path) -> None:
    """A corpus of a few lines, for a dry run; with the tokenizer where there is one."""
    source = Task(target, data)
    for split, count in DRY_LINES.items():
        for side in ("en", "de"):
            if not (target / f"{split}.{side}").is_file():
                first_lines(source.text(split, side), target / f"{split}.{side}", count)
    if (data / "tokenizer.model").is_file():
        shutil.copyfile(data / "tokenizer.model", target / "tokenizer.model")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not done yet; the exit code is 1 where anything failed."""
    told = parser()
    asked = told.parse_args(arguments)
    if asked.clocks <= GATHERING + GRACE or asked.minutes <= asked.clocks:
        told.error(
            f"--minutes ({asked.minutes:g}) expects more than --clocks ({asked.clocks:g}), and that more than 0.8"
        )
    begun = time.monotonic()
    until = time.time() + 60 * (asked.minutes - asked.clocks)
    if asked.dry:
        cut(asked.data, asked.work / "text")
    plan = planned(asked, until)
    if asked.commands:
        show_commands([*making(plan), *clocks(plan), *gathering(plan)])
        return 0
    plan.task.outputs.mkdir(parents=True, exist_ok=True)
    code = phases(plan, lambda before: max(0.0, asked.minutes - before - (time.monotonic() - begun) / 60), asked.clocks)
    gone = (time.monotonic() - begun) / 60
    print(f"{gone:.1f} of {asked.minutes:g} minutes; see {asked.work / 'parcels'}", flush=True)
    return code


def phases(plan: Plan, remaining: Callable[[float], float], clock_minutes: float) -> int:
    """Make, pack, time, gather. `remaining` tells the minutes until so many before the end. Who is interrupted gathers
    what there is and times nothing."""
    work = plan.task.work
    service = Service(work / "mps")
    at_once = not plan.dry and service.start(lambda text: print(text, flush=True))
    limits = Limits(share=GPU_AT_ONCE if at_once else GPU, stop_after=remaining(clock_minutes), grace=GRACE)
    schedules = [Schedule(making(plan), work, limits, environment=service.environment)]
    try:
        codes = [schedules[0].run()]
    finally:
        service.stop()  # nothing that reads a clock knows of it
    finished = [name for name in PACKED if there(plan.task.model(name))]
    schedules.append(Schedule([packing(plan, finished), *keeping(plan)], work))
    codes.append(schedules[-1].run())
    if not any(one.told_to_end for one in schedules):
        timed = Limits(retries=0, stop_after=remaining(GATHERING + GRACE), grace=GRACE)
        codes.append(Schedule(clocks(plan), work, timed).run())
    codes.append(Schedule(gathering(plan), work, Limits(retries=0)).run())
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
