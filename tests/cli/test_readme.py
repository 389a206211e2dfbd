"""What the README and the pages beside it show being typed works.

A block is run if the line before it says so:

    <!-- test -->
    ```console
    $ longstride translate -m model < input.txt
    expected output, if any is shown; a line of ... stands for any lines
    ```

Commands run one after another in one empty folder per page, in which `recipes` is that of the repository. A shell runs
them up to the first of ours; the others of ours, which would each wait for PyTorch, are carried out in this process.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Ran, Run

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


def plain(command: str) -> list[str] | None:
    """The arguments of a command of ours that asks nothing of the shell."""
    program, _, rest = command.partition(" ")
    return shlex.split(rest) if program == "longstride" and not set(command) & set("|&;<>()$`*?#~\n") else None


def test_commands_that_a_shell_has_to_read_are_left_to_it() -> None:
    assert plain("longstride bench -o 'a file'") == ["bench", "-o", "a file"]
    for command in (
        "ls out",
        "longstride translate < in",
        "longstride demo | head",
        "longstride a \\\n b",
        "longstride $X",
    ):
        assert plain(command) is None


@pytest.mark.parametrize("path", PAGES, ids=[path.name for path in PAGES])
def test_what_a_page_shows_being_typed_works(
    path: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    monkeypatch.chdir(tmp_path)
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": search, "OMP_NUM_THREADS": "1"}
    typed = False
    for command, shown in commands(path.read_text(encoding="utf-8")):
        arguments = plain(command)
        if typed and arguments is not None:
            done = run(*arguments)
        else:
            ran = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
            done = Ran(ran.returncode, ran.stdout, ran.stderr)
            typed = typed or "longstride" in command
        assert done.code == 0, f"{command}\n{done.err}"
        assert not shown or matches(shown, done.out), f"{command}\nshown:\n{shown}\nprinted:\n{done.out}"
