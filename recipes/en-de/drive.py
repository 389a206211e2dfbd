"""The English-German task from corpus to records, stage by stage; run it again and it goes on where it was cut.

    python recipes/en-de/drive.py --work runs/en-de [--only teacher,distil] [--list]

Expects data/en-de/{train,valid,test}.{en,de}.xz. Every stage prints its estimate before and its time after; what it
made lies under --work: one folder per model, distilled/, records.jsonl, logs/. Estimates are minutes on one H200.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
DATA = Path("data/en-de")
SMALL = ("small", "small-6-2", "small-6-1")
HEADS = ("frozen-original", "frozen-distilled", "fine-tuned")
EVALUATED = ("teacher", "verifier", *SMALL)


@dataclass(frozen=True)
class Stage:
    """Commands of `longstride` that run side by side."""

    name: str
    minutes: float
    commands: tuple[tuple[str, ...], ...]


def stages(work: Path, extra: Sequence[str], precision: str) -> list[Stage]:
    """Everything there is to do, in order."""
    records = str(work / "records.jsonl")
    distilled = work / "distilled"

    def train(recipe: str, *settings: str) -> tuple[str, ...]:
        changes = [part for one in (*settings, *extra) for part in ("--set", one)]
        here = str(HERE / f"{recipe}.yaml")
        return ("train", here, "-o", str(work / recipe), "--resume", "--record", records, *changes)

    def distil(split: str, *more: str) -> tuple[str, ...]:
        return (
            *("distill", "-m", str(work / "teacher"), "-i", str(DATA / f"{split}.en.xz"), "-o", str(distilled / split)),
            *(
                "--precision",
                precision,
                "--set",
                "width=5",
                "--option",
                f"name={split}",
                "--resume",
                "--record",
                records,
            ),
            *more,
        )

    def evaluate(model: str, decoder: str, split: str, *settings: str) -> tuple[str, ...]:
        name = ", ".join([model, decoder, *settings])
        return (
            *(
                "evaluate",
                "-m",
                str(work / model),
                "-s",
                str(DATA / f"{split}.en.xz"),
                "-r",
                str(DATA / f"{split}.de.xz"),
            ),
            *("--decoder", decoder, "--precision", precision, "--batch", "512", "--record", records),
            *("--name", name, "--experiment", "en-de", "--workload", f"en-de {split}", "--json"),
            *(part for one in settings for part in ("--set", one)),
            *("-o", str(work / f"{split}.{name.replace(', ', '.').replace(':', '-')}.txt")),
        )

    learnt = (
        f"data.train_source={distilled / 'train' / 'train.src'}",
        f"data.train_target={distilled / 'train' / 'train.tgt'}",
        f"data.cache={distilled}",
    )
    original = f"data.cache={work}"
    verifier = f"base={work / 'verifier'}"
    distilled_valid = (
        f"data.valid_source={distilled / 'valid' / 'valid.src'}",
        f"data.valid_target={distilled / 'valid' / 'valid.tgt'}",
    )
    bench = (
        *("bench", "-m", str(work / "verifier"), "-s", str(DATA / "test.en.xz"), "-r", str(DATA / "test.de.xz")),
        *("--decoders", "greedy,beam", "--precision", precision, "--sample", "200", "--passes", "1", "-o", records),
        *("--experiment", "en-de eager", "--workload", "en-de test"),
    )
    return [
        Stage("teacher", 9.5, (train("teacher", original),)),
        Stage("distil-valid", 0.3, (distil("valid", "--option", "keep_all=true"),)),
        Stage("distil", 4.0, (distil("train", "--processes", "3"),)),
        Stage("verifier", 4.0, (train("verifier", *learnt, f"warm_start={work / 'teacher'}"),)),
        Stage("students", 3.5, (train("small", original), train("small-6-2", *learnt), train("small-6-1", *learnt))),
        Stage("evaluate-greedy", 0.7, tuple(evaluate(model, "greedy", "test") for model in EVALUATED)),
        Stage("evaluate-beam", 0.9, tuple(evaluate(model, "beam", "test") for model in EVALUATED)),
        Stage("bench", 2.0, (bench,)),
        # Draft and verify: heads on a frozen base side by side, then what needs the GPU for itself.
        Stage(
            "heads",
            5.0,
            (
                train("blockwise-frozen-original", original, f"base={work / 'teacher'}"),
                train("blockwise-frozen-distilled", *learnt, verifier),
            ),
        ),
        Stage("heads-fine-tuned", 6.0, (train("blockwise-fine-tuned", *learnt, verifier),)),
        Stage("drafter", 8.0, (train("drafter-shared", *learnt, *distilled_valid, verifier),)),
        Stage(
            "evaluate-drafts",
            2.0,
            (
                *(evaluate(f"blockwise-{kind}", "blockwise", "test") for kind in HEADS),
                evaluate("blockwise-fine-tuned", "blockwise", "test", "accept=top:2"),
                evaluate("drafter-shared", "draft-verify", "test"),
                evaluate("drafter-shared", "draft-verify", "test", "accept=top:3,gap:1.0"),
                evaluate("drafter-shared", "draft-verify", "test", "accept=top:5,gap:3.0"),
                evaluate("drafter-shared", "draft", "test"),
            ),
        ),
    ]


def run(stage: Stage, work: Path) -> float:
    """Run a stage's commands side by side; the minutes it took."""
    begun = time.monotonic()
    logs = work / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    running = []
    for number, command in enumerate(stage.commands):
        log = (logs / f"{stage.name}-{number}.log").open("ab")
        running.append(subprocess.Popen([sys.executable, "-m", "longstride", *command], stdout=log, stderr=log))
    codes = [process.wait() for process in running]
    if any(codes):
        raise SystemExit(f"{stage.name}: exit codes {codes}; see {logs / stage.name}-*.log")
    return (time.monotonic() - begun) / 60


def main() -> None:
    """Run what is not done yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/en-de"), help="folder for all that is made")
    parser.add_argument("--only", default="", help="these stages alone, separated by commas")
    parser.add_argument("--set", action="append", default=[], help="name=value for every training run")
    parser.add_argument("--precision", default="fp16", help="for decoding; fp32 on a CPU")
    parser.add_argument("--list", action="store_true", help="say what there is to do and leave")
    chosen = parser.parse_args()
    only = {name for name in chosen.only.split(",") if name}
    done = chosen.work / "done"
    done.mkdir(parents=True, exist_ok=True)
    planned = stages(chosen.work, chosen.set, chosen.precision)
    if unknown := only - {stage.name for stage in planned}:
        parser.error(f"there is no stage {sorted(unknown)}; there are {[stage.name for stage in planned]}")
    for stage in planned:
        mark = done / f"{stage.name}.json"
        if only and stage.name not in only:
            continue
        if chosen.list or mark.exists():
            print(
                f"{stage.name}: {'done' if mark.exists() else 'to do'}, estimated {stage.minutes} minutes", flush=True
            )
            continue
        print(f"{stage.name}: estimated {stage.minutes} minutes", flush=True)
        minutes = run(stage, chosen.work)
        mark.write_text(json.dumps({"stage": stage.name, "estimated": stage.minutes, "minutes": round(minutes, 2)}))
        print(f"{stage.name}: took {minutes:.1f} minutes", flush=True)


if __name__ == "__main__":
    main()
