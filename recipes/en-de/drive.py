"""The English-German task from corpus to records, stage by stage; run it again and it goes on where it was cut.

    python recipes/en-de/drive.py --work runs/en-de [--only teacher,distil] [--list]

Expects data/en-de/{train,valid,test}.{en,de}.xz. Every stage prints its estimate before and its time after; what it
made lies under --work: one folder per model, distilled/, outputs/, records.jsonl, logs/. Estimates are minutes on one
H200. Where one model is scored in many settings, one process loads it once and runs through them all.
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
OUTPUTS = "outputs"
SMALL = ("small", "small-6-2", "small-6-1")
HEADS = ("frozen-original", "frozen-distilled", "fine-tuned")
EVALUATED = ("teacher", "verifier", *SMALL)

FROZEN_SIZES, TUNED_SIZES = (2, 4, 6, 8, 10), (2, 4, 6, 8)
"""Block sizes decoded from the frozen heads (k=10) and the fine-tuned ones (k=8)."""
SMALL_DRAFTERS = ("drafter-1", "drafter-2", "drafter-6", "drafter-own")
BLOCKS = (10, 15, 20, 30)
"""Block sizes beside drafter-6's own 25."""


def heads_settings(sizes: Sequence[int], greedy: bool, variants: bool) -> list[str]:
    """Table 1 of the blockwise paper: every k exactly; as variants top-2, top-3 and minimum blocks of 2 and 3 too."""
    found = [*(["greedy"] if greedy else []), "blockwise:k=1", *(f"blockwise:k={k}" for k in sizes)]
    if variants:
        found += [f"blockwise:k={k};accept=top:{best}" for best in (2, 3) for k in sizes]
        found += [f"blockwise:k={k};min_block={least}" for least in (2, 3) for k in sizes if k >= least]
    return found


def drafter_settings(sweep: bool) -> list[str]:
    """GAD's Tables 1 and 3: both alone, exact, and GAD++ at the paper's two settings or over top-β and gap τ."""
    loose = [(best, gap) for best in (3, 5) for gap in (1, 2, 3, 4, 5)] if sweep else [(3, 1), (5, 3)]
    both = [f"draft-verify:accept=top:{best},gap:{gap}" for best, gap in loose]
    return ["greedy", "beam", "draft", "draft-verify", *both]


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

    def train(recipe: str, *settings: str, name: str = "") -> tuple[str, ...]:
        """Run a recipe; under another `name` where it is run with other settings too."""
        changes = [part for one in (*settings, *extra) for part in ("--set", one)]
        changes += ["--set", f"name=en-de-{name}"] if name else []
        here = str(HERE / f"{recipe}.yaml")
        return ("train", here, "-o", str(work / (name or recipe)), "--resume", "--record", records, *changes)

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

    def settings_of(model: str, split: str, experiment: str, settings: Sequence[str], *more: str) -> tuple[str, ...]:
        """Score one model in many settings, in one process; one record and one file of outputs for each."""
        source, reference = DATA / f"{split}.en.xz", DATA / f"{split}.de.xz"
        made = work / OUTPUTS / f"{model}.{split}"
        return (
            *("evaluate", "-m", str(work / model), "-s", str(source), "-r", str(reference)),
            *("--decoders", ",".join(settings), "--record", records, "--json"),
            *("--experiment", experiment, "--workload", f"en-de {split}"),
            *(more or ("--precision", precision, "--batch", "512", "-o", str(made))),
        )

    def exactness(model: str, decoder: str, kind: str) -> tuple[str, ...]:
        how = ("--exactness", "--precision", kind, "--batch", "256")
        return settings_of(model, "test", "en-de exactness", [decoder], *how)

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
            6.0,
            (
                *(
                    settings_of(f"blockwise-{kind}", split, "en-de blockwise", settings)
                    for split in ("valid", "test")
                    for kind, settings in (
                        ("frozen-original", heads_settings(FROZEN_SIZES, True, False)),
                        ("frozen-distilled", heads_settings(FROZEN_SIZES, True, True)),
                        # Trained with a first head of its own, it has no other greedy search than k=1.
                        ("fine-tuned", heads_settings(TUNED_SIZES, False, True)),
                    )
                ),
                *(
                    settings_of("drafter-shared", split, "en-de drafts", drafter_settings(sweep=True))
                    for split in ("valid", "test")
                ),
            ),
        ),
        # Small drafters for the same verifier: depth, an encoder of their own, block sizes.
        Stage(
            "small-drafters",
            6.0,
            tuple(train(recipe, *learnt, *distilled_valid, verifier) for recipe in SMALL_DRAFTERS),
        ),
        Stage(
            "small-blocks",
            6.0,
            tuple(
                train("drafter-6", *learnt, *distilled_valid, verifier, f"model.block={k}", name=f"drafter-6-k{k}")
                for k in BLOCKS
            ),
        ),
        Stage(
            "evaluate-small-drafts",
            2.5,
            (
                # Makes on the test set; block sizes on the validation set, as the paper has them.
                *(
                    settings_of(model, "test", "en-de small drafters", drafter_settings(sweep=False))
                    for model in SMALL_DRAFTERS
                ),
                *(
                    settings_of(model, "valid", "en-de small drafters", drafter_settings(sweep=False))
                    for model in ("drafter-6", *(f"drafter-6-k{k}" for k in BLOCKS))
                ),
            ),
        ),
        # Last, since a broken promise ends the run once it is recorded.
        Stage(
            "exactness",
            4.0,
            tuple(
                exactness(model, decoder, kind)
                for kind in ("fp32", "fp16", "bf16")
                for model, decoder in (
                    ("blockwise-frozen-distilled", "blockwise"),
                    ("blockwise-fine-tuned", "blockwise"),
                    ("drafter-shared", "draft-verify"),
                )
            ),
        ),
    ]


def run(stage: Stage, work: Path) -> float:
    """Run a stage's commands side by side; the minutes it took."""
    begun = time.monotonic()
    logs = work / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    (work / OUTPUTS).mkdir(exist_ok=True)
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
