"""How many tokens to draft, by the number of rows that are decoded side by side: a table, given or measured once.

A draft costs much in a large batch and saves calls in a small one; where drafts are bad or steps dear none is best,
which is greedy search. Measured, the table holds whichever length took the least time for sentences like those at hand;
it may be kept in a file for the next start (:class:`LengthFile`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from longstride.contract import OptionError, WorkError
from longstride.contract.options import shown
from longstride.text.files import output_file, read_json

MARGIN = 0.02
"""A draft must be faster than greedy search by this part of its time."""
TREE = "tree"
"""What stands behind the nodes of a tree."""
FORMAT = 1
"""Of the files that measured tables are kept in."""
TIMES = 2
"""Each length is timed so often, in turns; its least time counts."""

Length = TypeVar("Length", bound=Hashable)
"""Whatever is timed."""


@dataclass(frozen=True)
class DraftPolicy:
    """From so many rows on, drafts of so many tokens (0: none)."""

    lengths: tuple[tuple[int, int], ...] = ()
    trees: frozenset[int] = frozenset()
    """the numbers of rows from which on these tokens are a tree"""

    form = "ROWS:TOKENS,..., as 1:10,8:4,32:0, or ROWS:NODEStree"

    @staticmethod
    def from_text(text: str) -> DraftPolicy:
        """Read ``1:10,8:4,32:0``."""
        parts = text.split(",")
        try:
            pairs = [tuple(int(number) for number in part.removesuffix(TREE).split(":")) for part in parts]
        except ValueError:
            pairs = []
        sound = pairs and all(len(pair) == 2 and pair[0] >= 1 and pair[1] >= 0 for pair in pairs)
        if not sound or len({pair[0] for pair in pairs}) < len(pairs):
            raise OptionError(f"expected {DraftPolicy.form}, found {shown(text)}.")
        trees = frozenset(pair[0] for pair, part in zip(pairs, parts, strict=True) if part.endswith(TREE) and pair[1])
        return DraftPolicy(tuple(sorted((rows, length) for rows, length in pairs)), trees)

    @staticmethod
    def usual(device: str) -> DraftPolicy | None:
        """Where nobody has said how to draft and several rows are decoded at once, on such a device; None: the block.

        A few rows keep a processor's cores busy, so that every drafted slot takes its time. Processor time over
        greedy's, of 60 debates with the base model in int8: 0.8 to 1.0 for 2 rows (by the draft's length), 1.1 to 1.2
        for 4, 1.2 to 1.4 for 8, 1.6 to 3.6 for 32; the bundled model's, eagerly in fp32, about 2 for 2 rows.
        """
        return DraftPolicy(((2, 0),)) if device == "cpu" else None

    def __str__(self) -> str:
        return ",".join(f"{rows}:{length}{TREE if rows in self.trees else ''}" for rows, length in self.lengths)

    def length(self, rows: int, most: int) -> int:
        """For so many rows, at most `most`; that where the table says nothing of so few."""
        found = [length for least, length in self.lengths if least <= rows]
        return min(found[-1], most) if found else most

    def nodes(self, rows: int) -> int:
        """For so many rows, the nodes of a tree; 0: it is a chain."""
        reached = [(least, length) for least, length in self.lengths if least <= rows]
        return reached[-1][1] if reached and reached[-1][0] in self.trees else 0

    @property
    def longest_chain(self) -> int:
        """Return the tokens of its longest chain."""
        return max((length for rows, length in self.lengths if rows not in self.trees), default=0)

    def reaches(self, rows: int) -> bool:
        """Whether it says anything of so few rows."""
        return any(least <= rows for least, _ in self.lengths)

    def knows(self, rows: int) -> bool:
        """Whether there is an entry for just so many rows."""
        return any(least == rows for least, _ in self.lengths)

    def with_length(self, rows: int, length: int, tree: bool = False) -> DraftPolicy:
        """The same with another entry."""
        others = [pair for pair in self.lengths if pair[0] != rows]
        return DraftPolicy(tuple(sorted([*others, (rows, length)])), self.trees - {rows} | ({rows} if tree else set()))


def candidates(most: int) -> list[int]:
    """Lengths worth timing: none, half a block and a whole one."""
    return sorted({0, most // 2, most})


def timed(lengths: Sequence[Length], run: Callable[[Length], object]) -> dict[Length, float]:
    """The least of the seconds that `run` takes with each length, in the order given."""
    for length in lengths:
        run(length)  # what is built or captured on the way is not timed
    seconds = dict.fromkeys(lengths, float("inf"))
    for _ in range(TIMES):
        for length in lengths:
            begun = perf_counter()
            run(length)
            seconds[length] = min(seconds[length], perf_counter() - begun)
    return seconds


def best_of(seconds: Mapping[Length, float]) -> Length:
    """The length of the least time, the first of them where later ones gain next to nothing."""
    best, *others = seconds
    for length in others:
        if seconds[length] < (1 - MARGIN) * seconds[best]:
            best = length
    return best


class LengthFile:
    """Measured tables on disk, of one model on one device. A file that is damaged, of another format or about something
    else counts as none, and one that cannot be written is done without: tables can always be measured anew."""

    def __init__(self, path: Path, about: Mapping[str, str]) -> None:
        """`about`: what the measurements depend on; the same words must stand in the file."""
        self.path, self._about = path, dict(about)

    def read(self, key: str) -> DraftPolicy | None:
        """The table of a decoder with certain limits, in words."""
        return self._tables().get(key)

    def write(self, key: str, policy: DraftPolicy) -> None:
        """Keep a table beside those that are there."""
        lengths = {name: str(table) for name, table in {**self._tables(), key: policy}.items()}
        content = {"format": FORMAT, "about": self._about, "lengths": lengths}
        with suppress(OSError, OptionError, WorkError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with output_file(self.path) as file:
                file.write(json.dumps(content, indent=1).encode())

    def _tables(self) -> dict[str, DraftPolicy]:
        try:
            content = read_json(self.path)
            if (content["format"], content["about"]) != (FORMAT, self._about):
                return {}
            return {key: DraftPolicy.from_text(text) for key, text in content["lengths"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OptionError):
            return {}
