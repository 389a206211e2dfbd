"""Check a draft-length policy through `translate`: it against greedy search and against every fixed setting, by rows.

    PYTHONPATH=src python3 benchmarks/policy_check.py LINES RECORDS [-m bundled] [--measure 40] [--rows 1,8,32,128] ...

The policy is the model folder's own; with `--lengths` the one given, with `--measure SECONDS` the one that `adapt`
would measure on the first thousand lines of LINES. Later lines are timed: all settings in turns, medians. Prints a
table for each number of rows, appends a JSON record for each setting to RECORDS, and exits with 1 where the policy is
more than 2 % slower than greedy search or more than 10 % slower than the best fixed setting.

On an H200 it takes about two minutes with the bundled model and `--measure 40`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

import longstride
from longstride.adaptation.lengths import candidates, choose, spread
from longstride.loaded_model import DRAFTED, GREEDY
from longstride.verification.draft_policy import TREE

POLICY = "policy"
LEARNT_FROM = 1000
"""Lines that the policy is measured on, at most half of them."""
SLOWER_THAN_GREEDY, SLOWER_THAN_BEST = 1.02, 1.1


def settings_of(translator: longstride.Translator, lengths: str | None) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the decoder and the options of each setting, greedy search first."""
    block = int(translator.decoder(DRAFTED)[0].options.k)  # type: ignore[attr-defined]
    found: dict[str, tuple[str, dict[str, Any]]] = {
        GREEDY: (GREEDY, {}),
        POLICY: (DRAFTED, {} if lengths is None else {"lengths": lengths}),
    }
    for drafts in candidates(block)[1:]:
        name, tokens = ("tree" if drafts.endswith(TREE) else "k"), int(drafts.removesuffix(TREE))
        found[f"{name}={tokens}"] = (DRAFTED, {name: tokens})
    return found


def timed(
    translator: longstride.Translator,
    lines: list[str],
    rows: int,
    settings: dict[str, tuple[str, dict[str, Any]]],
    passes: int,
) -> list[dict[str, Any]]:
    """Return a record for each setting."""

    def run(setting: str) -> tuple[float, list[tuple[int, ...]]]:
        decoder, options = settings[setting]
        begun = time.perf_counter()
        made = translator.translate(lines, decoder, batch=rows, warn=lambda said: None, **options)
        return 1000 * (time.perf_counter() - begun) / len(lines), [one.tokens for one in made]

    outputs = {setting: run(setting)[1] for setting in settings}  # what is captured is not timed
    times: dict[str, list[float]] = {setting: [] for setting in settings}
    for _ in range(passes):
        for setting in settings:
            times[setting].append(round(run(setting)[0], 4))
    middle = {setting: median(taken) for setting, taken in times.items()}
    best = min(taken for setting, taken in middle.items() if setting != POLICY)
    return [
        {
            "rows": rows,
            "setting": setting,
            "options": settings[setting][1],
            "lines": len(lines),
            "ms_a_line": times[setting],
            "median": round(middle[setting], 4),
            "times_greedy": round(middle[GREEDY] / middle[setting], 3),
            "times_best": round(best / middle[setting], 3),
            "differ": sum(one != other for one, other in zip(outputs[setting], outputs[GREEDY], strict=True)),
        }
        for setting in settings
    ]


def check(records: list[dict[str, Any]]) -> bool:
    """Print the records of one number of rows; whether the policy is good enough."""
    print(f"\n{records[0]['rows']} rows, {records[0]['lines']} lines")
    print(f"{'setting':<12}{'ms a line':>11}{'of greedy':>11}{'of best':>9}{'differ':>8}")
    for one in records:
        figures = f"{one['median']:>11.4f}{one['times_greedy']:>11.3f}{one['times_best']:>9.3f}{one['differ']:>8}"
        print(f"{one['setting']:<12}{figures}", flush=True)
    (policy,) = (one for one in records if one["setting"] == POLICY)
    good = policy["times_greedy"] * SLOWER_THAN_GREEDY >= 1 and policy["times_best"] * SLOWER_THAN_BEST >= 1
    print("the policy is good enough" if good else "THE POLICY IS TOO SLOW")
    return bool(good)


def main() -> None:
    """By hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path)
    parser.add_argument("records", type=Path)
    parser.add_argument("-m", "--model", default="bundled")
    parser.add_argument("--drafter")
    parser.add_argument("--runtime", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rows", default="1,8,32,128")
    parser.add_argument("--lengths", help="the policy, instead of the folder's own")
    parser.add_argument("--measure", type=float, metavar="SECONDS", help="measure the policy as adapt does")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--most", type=int, default=2000, help="lines that are timed, at most")
    told = parser.parse_args()
    lines = [line for line in told.lines.read_text().splitlines() if line.strip()]
    translator = longstride.load(
        told.model, drafter=told.drafter, runtime=told.runtime, precision=told.precision, device=told.device
    )
    rows, lengths = [int(count) for count in told.rows.split(",")], told.lengths
    first = min(LEARNT_FROM, len(lines) // 2)
    common: dict[str, Any] = {"runner": translator.runner.describe(), "text": told.lines.name, "model": told.model}
    if torch.cuda.is_available():
        common["device"] = torch.cuda.get_device_name()
    with told.records.open("a") as file:
        if told.measure is not None:
            found = choose(translator, lines[:first], rows, lambda *_: None, told.measure)
            lengths = found["lengths"]
            file.write(json.dumps({**common, "measured": found}) + "\n")
            print(json.dumps(found), flush=True)
        settings, good = settings_of(translator, lengths), True
        for count in rows:
            some = spread(lines[first:], min(told.most, max(100, 16 * count, 400 if count > 1 else 0)))
            records = timed(translator, some, count, settings, told.passes)
            file.writelines(json.dumps({**common, "lengths": lengths, **one}) + "\n" for one in records)
            good &= check(records)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
