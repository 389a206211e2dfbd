"""A folder that a process works in is its own: other runs are refused, and no clock makes it rubbish."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from longstride.contract import WorkError
from longstride.text import folders
from longstride.text.files import alone_in
from longstride.text.folders import folder_written_whole
from tests.adaptation.tiny import SETTINGS, lines_file
from tests.cli.conftest import Run, run
from tests.folders import write_folder

__all__ = ["run"]

LATER = 10 * folders.LEFT_OVER


@pytest.mark.parametrize("jump", [LATER, -LATER])
def test_a_clock_that_jumps_removes_nothing_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    real = time.time
    with folder_written_whole(tmp_path / "out") as slow:
        (slow / "a").write_text("slow")
        monkeypatch.setattr(time, "time", lambda: real() + jump)
        with folder_written_whole(tmp_path / "out") as quick:
            (quick / "a").write_text("quick")
        assert (tmp_path / "out" / "a").read_text() == "quick"
    assert (tmp_path / "out" / "a").read_text() == "slow"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_a_dead_process_left_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".out-abcd1234").mkdir()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + LATER)
    with folder_written_whole(tmp_path / "out"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_held_folder_is_refused_until_it_is_let_go(tmp_path: Path) -> None:
    for _ in range(2):
        told = pytest.raises(WorkError, match="the only one to write it, found another process")
        with alone_in(tmp_path), told, alone_in(tmp_path):
            pass
    with pytest.raises(WorkError, match="could not be opened"), alone_in(tmp_path / "none"):
        pass


def test_a_second_adaptation_of_the_same_folder_is_refused(run: Run, tmp_path: Path) -> None:
    model, lines = write_folder(tmp_path / "model"), lines_file(tmp_path)
    command = ["adapt", model, "-s", lines, *SETTINGS, "--no-race", "-o", tmp_path / "out"]
    work = tmp_path / "out.work"
    assert run(*command, "--until", "decode").code == 0
    before = {path: path.stat().st_mtime_ns for path in work.rglob("*")}
    with alone_in(work):
        assert "found another process" in run(*command).failure
    assert {path: path.stat().st_mtime_ns for path in work.rglob("*")} == before
    assert not (tmp_path / "out").exists()
