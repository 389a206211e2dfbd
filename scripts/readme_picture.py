"""The picture of the README, drawn from the race that its first table shows, and from the later one of draft trees:
readme_picture.py [--check].

Every point has its name beside it. With --check nothing is drawn: what the picture was drawn from is compared.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from longstride.bench.figure import Picture, marker
from longstride.bench.record_files import read_records
from longstride.bench.records import Latency
from longstride.bench.statistics import summarise
from longstride.text.files import written_whole

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "benchmarks" / "results" / "en-de-races.jsonl"
LATER = ROOT / "benchmarks" / "through_translate.jsonl"
PICTURE = ROOT / "docs" / "at-work" / "speed.svg"
EXPERIMENT = "en-de together, cuda-graph"
LOSSLESS, OTHER, BASELINE = "#d1495b", "#30638e", "#52606d"
BASE = "en-de-verifier greedy"
TREES = "tree=31"
POINTS = {
    BASE: ("greedy", BASELINE, (0, 9)),
    "en-de-verifier beam": ("beam", BASELINE, (0, 9)),
    "en-de-drafter-linked-2-longer draft-verify": ("draft-verify", LOSSLESS, (0, 9)),
    "en-de-blockwise-fine-tuned-linked-longer blockwise": ("blockwise, fine-tuned heads", OTHER, (0, -16)),
    "en-de-interleaved-base interleaved": ("interleaved", OTHER, (0, 9)),
    "en-de-interleaved-base-sa interleaved": ("interleaved, two words an end", OTHER, (0, 9)),
    "en-de-lattice lattice candidates=128": ("lattice", OTHER, (0, 9)),
    TREES: ("draft trees, later", LOSSLESS, (52, 9)),
}
"""a candidate -> its name here, its colour, and where its name stands, in points from it"""


def picture() -> Picture:
    """BLEU against how many times as fast as greedy search a sentence is decoded."""
    race = {
        one.candidate: one
        for one in read_records([RECORDS])
        if isinstance(one, Latency) and one.origin.experiment == EXPERIMENT and one.batch_size == 1
    }
    times = {name: summarise(race[name].latencies_us).mean for name in POINTS if name != TREES}
    shown = {name: (times[BASE] / took, race[name].scores[0].value) for name, took in times.items()}
    later = [json.loads(line) for line in LATER.read_text(encoding="utf-8").splitlines()]
    trees = next(one for one in later if (one["text"], one["rows"], one["decoder"]) == ("debates", 1, TREES))
    assert trees["differ"] == 0, "what has greedy's output has its score"
    shown[TREES] = trees["times_greedy"], shown[BASE][1]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.axhline(shown[BASE][1], color=LOSSLESS, linewidth=0.8, linestyle="--", zorder=1)
        for name, (label, colour, away) in POINTS.items():
            x, y = shown[name]
            axes.plot(x, y, "o", color=colour, markersize=9)
            told = label if name == BASE else f"{label}, {x:.1f}×"
            axes.annotate(told, (x, y), away, textcoords="offset points", ha="center", color=colour, fontsize=10)
        axes.set_xscale("log")
        axes.set_xticks([0.5, 1, 2, 4, 8], ["0.5×", "1×", "2×", "4×", "8×"])
        axes.minorticks_off()
        axes.set(xlim=(0.5, 9), ylim=(22, 26.2), ylabel="BLEU")
        axes.set_xlabel("times as fast as our own captured greedy search, one sentence at a time")

    told = "base English-German model, 400 sentences of the debates test, NVIDIA H200, fp16"
    return Picture("readme", "Red: greedy's output, token for token. Blue: models of their own", told, 4.2, shown, draw)


def main() -> None:
    """Draw it, or see whether it is up to date."""
    found = picture()
    if "--check" in sys.argv[1:]:
        if not PICTURE.is_file() or marker(found.digest) not in PICTURE.read_text(encoding="utf-8"):
            sys.exit(f"error: {PICTURE.name} is not what its records say; `make report` draws it.")
        return
    with written_whole(PICTURE) as temporary:
        temporary.write_text(found.svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
