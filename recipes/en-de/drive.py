"""The English-German task from corpus to records, stage by stage; run it again and it goes on where it was cut.

    python recipes/en-de/drive.py --work runs/en-de [--only teacher,distil] [--list]

Expects data/en-de/{train,valid,test}.{en,de}.xz. Every stage and job prints its estimate before and its time after
(minutes on one H200); what it made lies under --work: one folder per model, distilled/, cache/, outputs/, logs/,
records.jsonl, minutes.jsonl. Jobs run side by side as far as the GPU and what they need allow. docs/reproduction.md
says what each stage makes; the stages are in driver/, one file per family.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from driver import autoregressive, drafts, interleaved, lattice, measuring
from driver.command_line import add_scheduling, run, show_commands
from driver.commands import Task
from driver.jobs import GPU_AT_ONCE, Stage, chosen
from driver.schedule import done


def stages(task: Task) -> list[Stage]:
    """Everything there is to do, in order."""
    return [
        stage for family in (autoregressive, drafts, interleaved, lattice, measuring) for stage in family.stages(task)
    ]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("--work", type=Path, default=Path("runs/en-de"), help="folder for all that is made")
    told.add_argument("--data", type=Path, default=Path("data/en-de"), help="folder of the corpus")
    told.add_argument("--given", type=Path, action="append", default=[], help="folder of models made earlier")
    told.add_argument("--store", type=Path, default=Path("checkpoints"), help="where `collect` puts models")
    told.add_argument("--only", default="", help="these stages, families or STAGE/JOB alone, separated by commas")
    told.add_argument("--skip", default="", help="but not these stages")
    told.add_argument("--set", action="append", default=[], help="name=value for every training run")
    told.add_argument("--precision", default="fp16", help="for decoding; fp32 on a CPU")
    told.add_argument("--runtime", default="eager", help="of what is timed")
    told.add_argument("--together", default="", help="models of bench-together, the verifier first (default: all)")
    told.add_argument("--sentences", type=int, default=0, help="of bench-together, a fixed sample (default: all)")
    told.add_argument("--passes", type=int, default=3, help="of bench-together")
    add_scheduling(told)
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not done yet."""
    told = parser()
    asked = told.parse_args(arguments)
    given, settings = tuple(asked.given), tuple(asked.set)
    together = tuple(name for name in asked.together.split(",") if name)
    task = Task(
        *(asked.work, asked.data, given, settings, asked.precision, asked.runtime, asked.store, together),
        *(asked.sentences, asked.passes),
    )
    planned = stages(task)
    try:
        picked = chosen(planned, [name for name in asked.only.split(",") if name])
    except ValueError as error:
        told.error(str(error))
    picked = [stage for stage in picked if stage.name not in asked.skip.split(",")]
    if asked.list:
        show(picked, planned, asked.work)
        return 0
    if asked.commands:
        show_commands(picked)
        return 0
    asked.work.mkdir(parents=True, exist_ok=True)
    task.outputs.mkdir(exist_ok=True)
    return run(picked, asked.work, asked)


def show(picked: Sequence[Stage], planned: Sequence[Stage], work: Path) -> None:
    """One line per stage."""
    left = 0.0
    for stage in picked:
        ready = sum(done(work, stage, job) for job in stage.jobs)
        state = "done" if ready == len(stage.jobs) else f"{ready} of {len(stage.jobs)} done" if ready else "to do"
        left += sum(job.minutes * min(job.share, GPU_AT_ONCE) for job in stage.jobs if not done(work, stage, job))
        needs = f", after {', '.join(stage.needs(planned))}" if stage.needs(planned) else ""
        print(f"{stage.name}: {state}, {len(stage.jobs)} jobs, estimated {stage.minutes} minutes{needs}")
    print(f"left: about {left / GPU_AT_ONCE:.0f} minutes")


if __name__ == "__main__":
    sys.exit(main())
