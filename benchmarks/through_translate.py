"""What a user gets: milliseconds a line through `translate`, by rows and decoder, and the outputs that differ.

    python benchmarks/through_translate.py MODEL DRAFTER|- RECORDS NAME=FILE:LINES@ROWS/greedy/k=10/tree=31 ...

A decoder is `greedy` or options of draft-verify (`k=10`, `tree=31`, `lengths=1:31tree;accept=exact`). The first one
named is what others are compared with. Each is run twice before anything is timed, and then three times in turns.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

import longstride

PASSES = 3


def race(translator: longstride.Translator, given: str, records: Path) -> None:
    """One text and number of rows, all decoders in turns."""
    head, _, rest = given.rpartition("@")
    rows, *decoders = rest.split("/")
    name, _, place = head.partition("=")
    file, _, most = place.rpartition(":")
    lines = [line.strip() for line in Path(file).read_text().splitlines() if line.strip()][: int(most)]

    def run(decoder: str) -> tuple[float, list[str]]:
        drafted = decoder != "greedy"
        options = dict(pair.split("=", 1) for pair in decoder.split(";")) if drafted else {}
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        begun = time.perf_counter()
        made = translator.translate(lines, "draft-verify" if drafted else "greedy", batch=int(rows), **options)
        return time.perf_counter() - begun, [one.text for one in made]

    first, texts = {}, {}
    for decoder in decoders:
        first[decoder], texts[decoder] = run(decoder)
        run(decoder)
    times: dict[str, list[float]] = {decoder: [] for decoder in decoders}
    for _ in range(PASSES):
        for decoder in decoders:
            seconds, made = run(decoder)
            if made != texts[decoder]:
                raise SystemExit(f"{decoder}: outputs change from pass to pass")
            times[decoder].append(round(1000 * seconds, 2))
    middle = {decoder: sorted(taken)[PASSES // 2] for decoder, taken in times.items()}
    for decoder in decoders:
        record = {
            "text": name,
            "lines": len(lines),
            "rows": int(rows),
            "decoder": decoder,
            "ms": times[decoder],
            "per_line": round(middle[decoder] / len(lines), 4),
            "times_greedy": round(middle[decoders[0]] / middle[decoder], 3),
            "differ": sum(one != other for one, other in zip(texts[decoder], texts[decoders[0]], strict=True)),
            "first": round(first[decoder], 2),
        }
        with records.open("a") as file_:
            file_.write(json.dumps(record) + "\n")
        print(json.dumps(record), flush=True)


def main() -> None:
    """By hand."""
    model, drafter, records, *given = sys.argv[1:]
    gpu = torch.cuda.is_available()
    translator = longstride.load(
        model,
        drafter=None if drafter == "-" else drafter,
        device="cuda:0" if gpu else "cpu",
        precision="fp16" if gpu else "int8",
        runtime="cuda-graph" if gpu else "native",
    )
    for one in given:
        race(translator, one, Path(records))


if __name__ == "__main__":
    main()
