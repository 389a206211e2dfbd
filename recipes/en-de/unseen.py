"""Sentences that a teacher never saw, out of those that it did: unseen.py SOURCE TARGET [--asked FILE] [--seed N].

Where there is no more text to distil, there are more sentences in it. One with several clauses gives two: a clause by
itself, and what is left without it, each written as a sentence. What a teacher says to them is new to its student:

    python recipes/en-de/unseen.py data/en-de/train.en.xz data/en-de/unseen.en
    longstride distill -m runs/en-de/teacher -i data/en-de/unseen.en -o data/en-de/distilled-unseen --precision fp16

With --asked, lines that were put to a teacher already, the lines of SOURCE that are none of them come first.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from longstride.text.corpus import read_lines, write_lines

BETWEEN = re.compile(r"\s*[,;:]\s+")
FEWEST = 4
"""words of a clause, and of what is left"""
MOST = 60


def sentences(lines: Iterable[str], seed: int) -> Iterator[str]:
    """Each one once, none of them a line, in an order drawn by the seed."""
    seen = dict.fromkeys(lines)
    draw = random.Random(seed)
    found: dict[str, None] = {}
    for line in seen:
        clauses = [clause for clause in BETWEEN.split(line.rstrip(" .!?")) if clause]
        long = [place for place, clause in enumerate(clauses) if len(clause.split()) >= FEWEST]
        if len(clauses) < 2 or not long:
            continue
        chosen = draw.choice(long)
        rest = clauses[:chosen] + clauses[chosen + 1 :]
        for words in (clauses[chosen], ", ".join(rest)):
            if FEWEST <= len(words.split()) <= MOST:
                found[words[0].upper() + words[1:] + "."] = None
    fresh = [one for one in found if one not in seen]
    draw.shuffle(fresh)
    yield from fresh


def further(lines: Iterable[str], asked: Iterable[str], seed: int) -> Iterator[str]:
    """The lines that no teacher was asked for yet, each once, and then the sentences."""
    lines, known = list(lines), set(asked)
    yield from dict.fromkeys(line for line in lines if line not in known)
    yield from sentences(lines, seed)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--asked", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    lines = read_lines(told.source)
    made = sentences(lines, told.seed) if told.asked is None else further(lines, read_lines(told.asked), told.seed)
    write_lines(told.target, made)


if __name__ == "__main__":
    main()
