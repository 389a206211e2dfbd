"""Render a run's records into a folder of its own, so that the pages of the repository stay as they are.

own_page.py FOLDER -- COMMAND OF LONGSTRIDE
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Write a first page, which `longstride report` then finds no marks in, and become the command."""
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.md").write_text("# This run\n\nSee [results](results.md).\n", encoding="utf-8")
    os.execv(sys.executable, [sys.executable, "-m", "longstride", *arguments[arguments.index("--") + 1 :]])


if __name__ == "__main__":
    main(sys.argv[1:])
