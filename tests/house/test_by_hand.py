"""Programs in benchmarks/ that are run by hand: the figures that they write down."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_a_file_of_fewer_lines_is_as_fast_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four lines in a second are four a second, though up to 2,000 were asked for."""
    (tmp_path / "lines").write_text("a\nb\nc\nd\n")
    clock = count()

    def run(command: list[str], input: str = "", **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, input)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    monkeypatch.setattr(sys, "argv", ["piped.py", "model", str(tmp_path / "lines"), str(tmp_path / "out")])
    runpy.run_path(str(ROOT / "benchmarks" / "piped.py"))["main"]()
    told = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [(one["lines"], one["lines_per_second"]) for one in told] == [(4, 4.0)] * 4


def test_a_race_of_two_trees_says_at_once_where_its_records_go(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is to be raced")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["side_by_side.py", "race", "old", "new", "--text", "lines"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(ROOT / "benchmarks" / "side_by_side.py"))["main"]()
