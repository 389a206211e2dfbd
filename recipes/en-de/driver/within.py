"""Train for as many updates as there is time for.

    within.py WORK NAME --until TIME --update SECONDS [--beside NAME:SECONDS[:UPDATES] ...] -- COMMAND OF LONGSTRIDE

Decides when it is begun (budget.py), adds the number to the command's settings and becomes that command. What was
decided is kept in WORK/updates/NAME.json: a training that has left a checkpoint goes on with the number it had. Too
little time ends as an interruption does: run again, with more, it begins.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for `driver`, where this is run as a script

from driver.budget import Cost, left, updates

INTERRUPTED = 130
CHECKPOINTS = 20
"""in a run; the last five, a quarter of the updates, are averaged"""


def main(arguments: list[str]) -> None:
    """Decide, then become the command."""
    split = arguments.index("--")
    asked = parser().parse_args(arguments[:split])
    cost = Cost(asked.update, asked.start, asked.end, asked.least, asked.most)
    seconds = asked.until - time.time()
    others = sum(needed(asked.work, one) for one in asked.beside)
    kept = asked.work / "updates" / f"{asked.name}.json"
    begun = any((asked.work / asked.name / "checkpoints").glob("step-*"))
    count = planned(asked.work, asked.name) if begun else 0
    count = count or updates(seconds, cost, others, asked.part)
    told = {"updates": count, "seconds": round(seconds, 1), "others": round(others, 1), "update": asked.update}
    print(f"{asked.name}: {json.dumps(told)}", flush=True)
    if not count:
        sys.exit(INTERRUPTED)
    if not begun:
        kept.parent.mkdir(parents=True, exist_ok=True)
        temporary = kept.with_suffix(".partial")
        temporary.write_text(json.dumps(told) + "\n", encoding="utf-8")
        temporary.replace(kept)
    settings = [f"training.steps={count}", f"training.checkpoint_every={max(1, count // CHECKPOINTS)}"]
    more = [part for one in settings for part in ("--set", one)]
    os.execv(sys.executable, [sys.executable, "-m", "longstride", *arguments[split + 1 :], *more])


def parser() -> argparse.ArgumentParser:
    """The part of the command line before the command."""
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("work", type=Path)
    told.add_argument("name", help="the training's folder in WORK")
    told.add_argument("--until", type=float, required=True, help="when it must have ended, in seconds since 1970")
    told.add_argument("--update", type=float, required=True, help="seconds of the GPU that one takes")
    told.add_argument("--beside", action="append", default=[], help="a training that has the GPU too, and its updates")
    told.add_argument("--part", type=float, default=1.0, help="of what is left, where something comes after it")
    told.add_argument("--start", type=float, default=Cost.start, help="seconds until the first update")
    told.add_argument("--end", type=float, default=Cost.end, help="seconds after the last update")
    told.add_argument("--least", type=int, default=Cost.least, help="updates that are worth it")
    told.add_argument("--most", type=int, default=Cost.most, help="updates that are enough")
    return told


def needed(work: Path, told: str) -> float:
    """Seconds of the GPU that another training needs until it is done; none where its model is there."""
    name, update, *counted = told.split(":")
    if (work / name / "model" / "config.json").is_file():
        return 0.0
    return left(int(counted[0]) if counted else planned(work, name), reached(work / name), float(update))


def planned(work: Path, name: str) -> int:
    """What was decided for a training, 0 where nothing was."""
    kept = work / "updates" / f"{name}.json"
    return int(json.loads(kept.read_text(encoding="utf-8"))["updates"]) if kept.is_file() else 0


def reached(folder: Path) -> int:
    """The last update that a training has told of."""
    file = folder / "metrics.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.is_file() else []
    return max((int(json.loads(line).get("step", 0)) for line in lines if line.endswith("\n")), default=0)


if __name__ == "__main__":
    main(sys.argv[1:])
