"""Two source trees side by side: the same model, text and decoders, in turns, so that a busy machine is busy for both.

    python benchmarks/side_by_side.py race OLD/src NEW/src --text lines.en --precision int8 -o race.jsonl
    python benchmarks/side_by_side.py table race.jsonl

Every worker is a process of its own that imports one tree, loads the model, notes how long that and the first
translation took, and then decodes the text by each decoder and batch size. Records are one JSON line per worker and
decoder: seconds of every pass, CPU seconds, and a hash of the outputs. The table gives the least time a sentence of
each tree over all rounds, their ratio, and whether outputs are equal.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RACES = "greedy@1,beam@1,blockwise@1,draft-verify@1,interleaved@1,lattice@1," + ",".join(
    f"{name}@{batch}" for batch in (8, 64) for name in ("greedy", "beam", "blockwise", "draft-verify")
)


def main() -> None:
    """Race, or show what a race gave."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("race", "worker"):
        one = commands.add_parser(name)
        one.add_argument("trees", nargs="*" if name == "worker" else 2)
        one.add_argument("--model")
        one.add_argument("--runtime", default="native")
        one.add_argument("--precision", default="int8")
        one.add_argument("--text", type=Path, required=True)
        one.add_argument("--sentences", type=int, default=64)
        one.add_argument("--races", default=RACES)
        one.add_argument("--rounds", type=int, default=2)
        one.add_argument("--passes", type=int, default=2)
        one.add_argument("-o", "--output", type=Path, required=name == "race")  # before anything is raced
    commands.add_parser("table").add_argument("records", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "table":
        print(table([json.loads(line) for line in arguments.records.read_text().splitlines()]))
    elif arguments.command == "worker":
        worker(arguments)
    else:
        race(arguments)


def race(arguments: argparse.Namespace) -> None:
    """Let the trees take turns; records are appended as they come."""
    given = [item for item in sys.argv[2:] if item not in arguments.trees]
    for turn in range(arguments.rounds):
        for tree, name in zip(arguments.trees, ("old", "new"), strict=True):
            environment = {**os.environ, "PYTHONPATH": tree}
            command = [sys.executable, __file__, "worker", *given]
            found = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            with arguments.output.open("a") as file:
                for line in found.stdout.splitlines():
                    file.write(json.dumps({"tree": name, "turn": turn, **json.loads(line)}) + "\n")


def worker(arguments: argparse.Namespace) -> None:
    """One tree's turn."""
    begun = time.perf_counter()
    import longstride

    lines = arguments.text.read_text(encoding="utf-8").splitlines()[: arguments.sentences]
    named = [arguments.model] if arguments.model else []
    setting = {"runtime": arguments.runtime, "precision": arguments.precision}
    translator = longstride.load(*named, **setting)
    translator.translate(lines[:1])
    first = time.perf_counter() - begun
    for race in arguments.races.split(","):
        decoder, _, batch = race.partition("@")
        size = int(batch)
        count = max(size, len(lines) if size > 1 else min(len(lines), 100))
        text = (lines * -(-count // len(lines)))[:count]

        def decode(decoder: str = decoder, size: int = size, text: list[str] = text) -> Any:
            return translator.translate(text, decoder=decoder, batch=size)

        decode()
        seconds, processor = [], []
        for _ in range(arguments.passes):
            wall, cpu = time.perf_counter(), _cpu()
            outputs = decode()
            seconds.append(time.perf_counter() - wall)
            processor.append(_cpu() - cpu)
        digest = hashlib.sha256("\n".join(one.text for one in outputs).encode()).hexdigest()[:16]
        record = {"decoder": decoder, "batch": size, "sentences": len(text), "seconds": seconds, "cpu": processor}
        print(json.dumps({**setting, **record, "outputs": digest, "first": first}), flush=True)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def table(records: list[dict[str, Any]]) -> str:
    """Milliseconds a sentence, the least of all passes."""
    found: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for record in records:
        key = tuple(record[name] for name in ("runtime", "precision", "decoder", "batch"))
        kept = found.setdefault(key, {}).setdefault(record["tree"], {"wall": [], "cpu": [], "outputs": set()})
        kept["wall"] += [1e3 * one / record["sentences"] for one in record["seconds"]]
        kept["cpu"] += [1e3 * one / record["sentences"] for one in record["cpu"]]
        kept["outputs"].add(record["outputs"])
    head = "| runtime | decoder | batch | before, ms | now, ms | now / before | CPU, now / before | outputs |"
    rows = [head, "|---|---|---:|---:|---:|---:|---:|---|"]
    for (runtime, precision, decoder, batch), both in found.items():
        old, new = both["old"], both["new"]
        wall, cpu = min(new["wall"]) / min(old["wall"]), min(new["cpu"]) / min(old["cpu"])
        equal = "equal" if old["outputs"] == new["outputs"] and len(old["outputs"]) == 1 else "differ"
        times = f"{min(old['wall']):.2f} | {min(new['wall']):.2f} | {wall:.2f} | {cpu:.2f}"
        rows.append(f"| {runtime} {precision} | {decoder} | {batch} | {times} | {equal} |")
    first = {tree: min(one["first"] for one in records if one["tree"] == tree) for tree in ("old", "new")}
    return "\n".join([*rows, "", f"To the first translation: {first['old']:.2f} s before, {first['new']:.2f} s now."])


if __name__ == "__main__":
    main()
