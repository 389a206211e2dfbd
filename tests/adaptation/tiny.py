"""The smallest adaptation there is."""

from __future__ import annotations

import random
from pathlib import Path

from longstride.tasks.toys import SYMBOLS

SETTINGS = ["--updates", "8", "--runtime", "eager", "--device", "cpu"] + [
    part
    for setting in ("held_out=2", "shard_lines=5", "tokens=120", "layers=1", "block=4", "lengths=1:3", "batch_sizes=1")
    for part in ("--set", setting)
]
"""Some seconds of one core."""


def lines_file(folder: Path, count: int = 16, seed: int = 0) -> Path:
    """Lines of a few letters each."""
    draw = random.Random(seed)
    lines = [" ".join(draw.choices(SYMBOLS, k=draw.randint(2, 6))) for _ in range(count)]
    file = folder / f"lines-{seed}.txt"
    file.write_text("".join(f"{line}\n" for line in lines))
    return file
