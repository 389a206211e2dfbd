"""Which commit runs, as records say."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from longstride.cli import console


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_asking_for_the_commit_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even git's notes of what has changed: a process that is killed over it would leave its lock."""
    (tmp_path / "code.py").write_text("1\n")
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "a"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    os.utime(tmp_path / "code.py", (1, 1))
    before = (tmp_path / ".git" / "index").stat().st_ino
    monkeypatch.setattr(console, "__file__", str(tmp_path / "code.py"))
    made_by, dirty = console.commit()
    assert len(made_by) == 12
    assert not dirty
    assert (tmp_path / ".git" / "index").stat().st_ino == before
