"""A run that is killed with -9 at random moments ends, when it is run again, in the same folder as without.

`LONGSTRIDE_KILLS=10` kills more often than a quick run does, `LONGSTRIDE_KILL_SEED` at other moments.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adaptation.tiny import SETTINGS, lines_file
from tests.folders import write_folder

KILLS = int(os.environ.get("LONGSTRIDE_KILLS", "2"))
SEED = os.environ.get("LONGSTRIDE_KILL_SEED", "0")
TIMED = {"README.md", "adaptation.jsonl"}
"""Files that tell times and dates."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_killed_runs_end_in_the_same_bits(tmp_path: Path) -> None:
    model, source = write_folder(tmp_path / "model"), lines_file(tmp_path)
    one, other = tmp_path / "whole", tmp_path / "killed"
    command = [sys.executable, "-m", "tests.adaptation.killing", str(KILLS), SEED, str(one), str(other), "--"]
    command += ["adapt", str(model), "-s", str(source), *SETTINGS, "--no-race"]
    ran = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    files = {file.name for file in one.iterdir()}
    assert files == {file.name for file in other.iterdir()}
    assert files > TIMED
    for name in sorted(files - TIMED):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    assert {path.name for path in tmp_path.iterdir()} == {"model", source.name, "whole", "killed"}  # nothing is left
    print(ran.stdout)
