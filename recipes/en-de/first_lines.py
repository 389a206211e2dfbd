"""The first lines of a file, plain or compressed, as a plain file: first_lines.py SOURCE TARGET COUNT."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

from longstride.text.corpus import read_lines
from longstride.text.files import written_whole


def first_lines(source: Path, target: Path, count: int) -> None:
    """Copy them, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(target) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as out:
        out.writelines(f"{line}\n" for line in islice(read_lines(source), count))


if __name__ == "__main__":
    first_lines(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
