"""The bundled English-German family from corpus to one folder; run it again and it goes on where it was cut.

    python recipes/bundled/en-de/drive.py --only prepare                            # on a CPU, ten to twenty minutes
    python recipes/bundled/en-de/drive.py --only corpora,verifier,decoders,assemble # on a GPU, seven minutes
    python recipes/bundled/en-de/drive.py --only measure,card                       # on a CPU: scores, times, the card

Expects a teacher's output in --distilled (recipes/en-de/drive.py makes it), and {train,valid,test}.{en,de} of everyday
sentences, {valid,test} of debates, plain or compressed. What is made lies under --work; --list says what is done and
what the rest would cost, --dry runs everything with tiny models. Stages are in family/stages.py; they are scheduled by
the driver of recipes/en-de.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "en-de")]  # for `family` and `driver`

from driver.command_line import add_scheduling, run, show_commands  # noqa: E402
from driver.jobs import Stage, chosen  # noqa: E402
from driver.schedule import done  # noqa: E402
from family.stages import NAME, Task, stages  # noqa: E402


def parser() -> argparse.ArgumentParser:
    """The command line."""
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("--work", type=Path, default=Path("runs") / NAME, help="folder for all that is made")
    told.add_argument("--distilled", type=Path, default=Path("checkpoints/distilled/train"), help="a teacher's output")
    told.add_argument("--debates", type=Path, default=Path("data/en-de"), help="their validation and test sets")
    told.add_argument("--everyday", type=Path, default=Path("data/tatoeba_en_de"), help="corpus of everyday sentences")
    told.add_argument("--only", default="", help="these stages, families or STAGE/JOB alone, separated by commas")
    told.add_argument("--set", action="append", default=[], help="name=value for every training run")
    told.add_argument("--precision", default="fp32", help="of decoding for scores; fp16 on a GPU")
    told.add_argument("--dry", action="store_true", help="tiny models, a few updates: to see it all go through")
    add_scheduling(told)
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not done yet."""
    told = parser()
    asked = told.parse_args(arguments)
    task = Task(
        asked.work, asked.distilled, asked.debates, asked.everyday, tuple(asked.set), asked.dry, asked.precision
    )
    try:
        picked = chosen(stages(task), [name for name in asked.only.split(",") if name])
    except ValueError as error:
        told.error(str(error))
    if asked.list:
        show(picked, asked.work)
        return 0
    if asked.commands:
        show_commands(picked)
        return 0
    task.outputs.mkdir(parents=True, exist_ok=True)
    return run(picked, asked.work, asked)


def show(picked: Sequence[Stage], work: Path) -> None:
    """One line per stage."""
    for stage in picked:
        ready = sum(done(work, stage, job) for job in stage.jobs)
        state = "done" if ready == len(stage.jobs) else f"{ready} of {len(stage.jobs)} done" if ready else "to do"
        print(f"{stage.name}: {state}, estimated {stage.minutes} minutes")
    left = sum(stage.minutes for stage in picked if not all(done(work, stage, job) for job in stage.jobs))
    print(f"left: about {left:.1f} minutes")


if __name__ == "__main__":
    sys.exit(main())
