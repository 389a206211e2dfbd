"""How often a model copies what means the same in any language: numbers, names, codes, addresses, scripts, emoji, tags.

    python benchmarks/copied.py MODEL OUT.jsonl SOURCE.en:TRANSLATION.de ... [--each 200] [--seed 2026]

What is invented for it (recipes/bundled/en-de/copies.py) stands in held-out sentences, in the place of a number or a
name that source and translation have alike; emoji stand before or behind a sentence, tags around it. Counted is how
often greedy search writes it as it is. Prints and appends a JSON line.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from datetime import date
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "recipes" / "bundled" / "en-de"))

import copies

import longstride
from longstride.bench.machine import describe_machine
from longstride.text.corpus import read_parallel

Pair = tuple[str, str]
INVENTED: dict[str, Callable[[random.Random], str]] = {
    "numbers": copies.number,
    "names": copies.name,
    "codes": copies.code,
    "addresses": copies.address,
    "other scripts": copies.foreign,
}


def sentences(corpora: list[list[Pair]], kind: str, draw: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Sources without end, as many of each corpus, and what has to stand in the output."""
    while True:
        pair = draw.choice(draw.choice(corpora))
        if kind == "emoji":
            new = copies.emoji(draw)
            yield draw.choice(("{} " + new, new + " {}")).format(pair[0]), [new]
        elif kind == "tags":
            tag = draw.choice(copies.TAGS)
            yield f"<{tag}>{pair[0]}</{tag}>", [f"<{tag}>", f"</{tag}>"]
        elif places := [one for one in copies.shared_places(pair) if one[0].isdigit() == (kind == "numbers")]:
            new = INVENTED[kind](draw)
            yield re.sub(rf"\b{re.escape(draw.choice(places))}\b", lambda _, new=new: new, pair[0]), [new]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("corpora", nargs="+", help="SOURCE:TRANSLATION")
    parser.add_argument("--each", type=int, default=200)
    parser.add_argument("--seed", type=int, default=2026)
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    corpora = [list(read_parallel(*map(Path, one.split(":")))) for one in asked.corpora]
    translator = longstride.load(asked.model, device="cpu")
    percent = {}
    for kind in (*INVENTED, "emoji", "tags"):
        given = list(islice(sentences(corpora, kind, draw), asked.each))
        outputs = translator.translate([source for source, _ in given], "greedy")
        whole = [all(one in found.text for one in wanted) for found, (_, wanted) in zip(outputs, given, strict=True)]
        percent[kind] = round(100 * sum(whole) / asked.each, 1)
    told = {
        "date": str(date.today()),
        "processor": describe_machine().cpu,
        "model": Path(asked.model).name,
        "hash": translator.folder.sha256,
        "each": asked.each,
        "percent": percent,
    }
    line = json.dumps(told)
    print(line, flush=True)
    with asked.out.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


if __name__ == "__main__":
    main()
