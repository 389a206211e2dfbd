"""Distil, beginning with shards that were made earlier: resume_shards.py FOLDER [GIVEN ...] -- COMMAND OF LONGSTRIDE.

Shards that FOLDER lacks are copied from the folders given; the command then makes what is still missing.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Copy, then become the command."""
    split = arguments.index("--")
    folder, *given = map(Path, arguments[:split])
    for source in given:
        for path in sorted((source / "shards").glob("shard-*")):
            target = folder / "shards" / path.name
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
    os.execv(sys.executable, [sys.executable, "-m", "longstride", *arguments[split + 1 :]])


if __name__ == "__main__":
    main(sys.argv[1:])
