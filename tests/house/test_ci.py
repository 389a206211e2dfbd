"""The gate runs the checks and then the very command that the README gives."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

GATE = Path(__file__).resolve().parents[2] / ".ci" / "run"


TOOLS = ("bash", "sh", "env", "awk", "dirname", "id", "timeout")


def run_gate(folder: Path, readme: str) -> subprocess.CompletedProcess[str]:
    """In a folder of its own, with a make that only says what it was asked for, and an apt-get that fails."""
    (folder / ".ci").mkdir()
    shutil.copy(GATE, folder / ".ci" / "run")
    (folder / "README.md").write_text(readme)
    (folder / "bin").mkdir()
    (folder / "bin" / "make").write_text('#!/bin/sh\necho "make $*"\n[ "$*" != fail ]\n')
    (folder / "bin" / "apt-get").write_text("#!/bin/sh\nexit 100\n")
    for name in ("make", "apt-get"):
        (folder / "bin" / name).chmod(0o755)
    for name in TOOLS:
        (folder / "bin" / name).symlink_to(shutil.which(name) or name)
    command = ["bash", str(folder / ".ci" / "run")]
    environment = {**os.environ, "PATH": str(folder / "bin")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("line", ["make test", "$ make test", "make test    # every test"])
def test_the_readmes_command_is_run_after_the_checks(tmp_path: Path, line: str) -> None:
    done = run_gate(tmp_path, f"make test is\n\n```sh\nmake demo\n{line}\n```\n\n```\nmake test later\n```\n")
    assert done.returncode == 0
    assert ("No browser" in done.stderr) == (os.getuid() == 0)  # who may not install anything does not try
    assert [said for said in done.stdout.splitlines() if said.startswith("make")] == ["make check", "make test"]


def test_a_readme_without_the_command_fails(tmp_path: Path) -> None:
    done = run_gate(tmp_path, "make test is not in a block\n")
    assert done.returncode == 1
    assert "README.md: expected a code block" in done.stderr
