"""What the README and the pages beside it show being typed works.

A block is run if the line before it says so:

    <!-- test -->
    ```console
    $ longstride translate -m model < input.txt
    expected output, if any is shown; a line of ... stands for any lines
    ```

Commands run one after another in one empty folder per page, in which `recipes` is that of the repository.
"""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^<!-- test -->\n+```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if path.is_file()]


def commands(page: str) -> list[tuple[str, str]]:
    """Each marked command with the output shown below it."""
    found: list[tuple[str, str]] = []
    for block in BLOCK.findall(page):
        for line in block.splitlines(keepends=True):
            if line.startswith("$ "):
                found.append((line[2:].rstrip("\n"), ""))
            elif found and found[-1][0].endswith("\\"):
                found[-1] = (found[-1][0] + "\n" + line.rstrip("\n"), "")
            elif found:
                found[-1] = (found[-1][0], found[-1][1] + line)
    return found


def matches(shown: str, printed: str) -> bool:
    """Whether what a page shows is what was printed, lines of ... standing for any lines."""
    parts = ["*" if line == "..." else re.sub(r"([*?[])", r"[\1]", line) for line in shown.strip("\n").split("\n")]
    return fnmatch.fnmatchcase(printed.strip("\n"), "\n".join(parts))


def test_marked_commands_are_found_with_their_output() -> None:
    page = "<!-- test -->\n```console\n$ one \\\n  more\n$ two\nshown\n...\n```\n\n```console\n$ three\n```\n"
    assert commands(page) == [("one \\\n  more", ""), ("two", "shown\n...\n")]
    assert matches("a\n...\nz [1]", "a\nb\nc\nz [1]\n")
    assert not matches("a\n...\nz", "a\nb\ny")


@pytest.mark.parametrize("path", PAGES, ids=[path.name for path in PAGES])
def test_what_a_page_shows_being_typed_works(path: Path, tmp_path: Path) -> None:
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": search, "OMP_NUM_THREADS": "1"}
    for command, shown in commands(path.read_text(encoding="utf-8")):
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert not shown or matches(shown, done.stdout), f"{command}\nshown:\n{shown}\nprinted:\n{done.stdout}"
