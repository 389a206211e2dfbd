"""More source lines than the user has: new sentences made of the clauses of the user's own.

A drafter learns from the model's outputs alone, so that any source line can teach it. A long training that repeats the
user's lines dozens of times learns them by heart. New lines help more. Three kinds are made, in this order: a clause by
itself, the line without it, and a line with one clause replaced by another line's.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from itertools import islice

CLAUSE = re.compile(r"[^,;:，；：、]+[,;:，；：、]*\s*")
"""Text up to and including the punctuation that ends a clause"""
ENDS = ".!?…。！？,;:，；：、 "
FEWEST = 3
"""Words of a new line, at least; characters where a clause has no spaces"""


def further_lines(lines: Sequence[str], count: int, seed: int, unwanted: frozenset[str] = frozenset()) -> list[str]:
    """Return up to `count` new lines, none of them among `lines` or `unwanted`; the same ones for the same seed."""
    seen = unwanted | set(lines)
    made: dict[str, None] = {}
    for line in _made(lines, random.Random(seed)):
        if len(made) == count:
            break
        if line not in seen:
            made[line] = None
    return list(made)


def _made(lines: Sequence[str], draw: random.Random) -> Iterator[str]:
    """Yield candidates; at most ten times as many as there are lines."""
    divided = [(line, clauses) for line in lines if len(clauses := CLAUSE.findall(line)) > 1]
    draw.shuffle(divided)
    for line, clauses in divided:
        place = draw.randrange(len(clauses))
        for kept in ([clauses[place]], clauses[:place] + clauses[place + 1 :]):
            if _long_enough(text := "".join(kept)):
                yield _like(line, text)
    pieces = [clause for _, clauses in divided for clause in clauses[1:-1] or clauses[1:]]
    for line, clauses in islice(_cycle(divided), 8 * len(lines)):
        place = draw.randrange(len(clauses))
        end = clauses[place][len(clauses[place].rstrip(ENDS)) :]
        piece = draw.choice(pieces).rstrip(ENDS) + end
        yield _like(line, "".join([*clauses[:place], piece, *clauses[place + 1 :]]))


def _cycle(divided: Sequence[tuple[str, list[str]]]) -> Iterator[tuple[str, list[str]]]:
    while divided:
        yield from divided


def _long_enough(text: str) -> bool:
    words = text.split()
    return len(words) >= FEWEST or (len(words) == 1 and len(text.strip(ENDS)) >= 2 * FEWEST and not text.isascii())


def _like(line: str, text: str) -> str:
    """Write a text as a line is written: the case of its first letter and the sign at its end."""
    text = text.strip(ENDS)
    if line[:1].isupper():
        text = text[:1].upper() + text[1:]
    return text + line[len(line.rstrip(".!?…。！？")) :]
