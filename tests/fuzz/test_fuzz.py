"""A short search, the same every time: every command, mostly valid command lines, a fault or two in each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.fuzz.grammar import ROOT, commands

CASES = 40


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: this one may have threads, which do not live through a fork."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


def test_random_command_lines_end_as_promised() -> None:
    ran = fuzz("--seed", "19", "--cases", str(CASES))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Nothing found." in ran.stdout


def test_every_command_is_known_with_what_it_takes() -> None:
    found = {command.name: command for command in commands()}
    assert {"translate", "train", "bench", "report", "lattice build", "lattice inspect"} <= set(found)
    by_name = {one.name: one for one in found["translate"].parameters}
    assert (by_name["batch"].kind, by_name["batch"].least) == (int, 1)
    assert by_name["output"].kind is Path
    assert "-o" in by_name["output"].flags
    assert not by_name["output"].required
    assert by_name["set"].multiple
    assert not next(one for one in found["train"].parameters if one.name == "recipe").flags


def test_a_finding_is_told_with_all_it_takes_to_see_it_again(tmp_path: Path) -> None:
    # A command line that dies of an exception, a hang and a crash, in place of the real one.
    (tmp_path / "broken.py").write_text(BROKEN, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "broken.py")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=True,
    )
    kinds = Counter(line.split()[0] for line in ran.stdout.splitlines())
    assert set(kinds) == {"ZeroDivisionError", "hang", "crash", "temporary"}, ran.stdout + ran.stderr


BROKEN = """
import os, signal, sys, tempfile, time
from pathlib import Path
from tests.fuzz import material, pool
from tests.fuzz.grammar import commands

pool.SECONDS, pool.PATIENCE = 0.5, 1.0

def entry():
    number = int(Path.cwd().parent.name)
    if number == 0:
        1 / 0
    if number == 1:
        time.sleep(60)
    if number == 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    Path("out/.x-abc").touch()

with tempfile.TemporaryDirectory() as folder:
    made = material.make(Path(folder) / "material")
    for number, outcome in pool.Pool(1, Path(folder) / "cases", made, commands(), entry).outcomes(iter(range(4))):
        for one in outcome.findings:
            print(one.kind, "at", one.place, "by", outcome.argv)
"""
