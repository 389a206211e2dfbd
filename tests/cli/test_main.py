"""The command as a whole: help, version, exit codes, `python -m`."""

from __future__ import annotations

import subprocess
import sys

import pytest

import longstride
from longstride.cli import report
from longstride.cli.main import COMMANDS
from longstride.contract import WorkError
from tests.cli.conftest import Run


def test_version(run: Run) -> None:
    ran = run("--version")
    assert (ran.code, ran.out) == (0, f"longstride {longstride.__version__}\n")


def test_help_names_every_command(run: Run) -> None:
    ran = run("--help")
    assert ran.code == 0
    assert [name for name in COMMANDS if name not in ran.out] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_explains_itself(run: Run, command: str) -> None:
    ran = run(command, "--help")
    assert ran.code == 0
    options = [line for line in ran.out.splitlines() if line.strip().startswith("-")]
    assert options


def test_an_unknown_command_is_misuse(run: Run) -> None:
    assert run("transalte").code == 2


def test_work_that_fails_is_not_misuse(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise WorkError("update 7: expected finite gradients, found [none].")

    monkeypatch.setattr(report, "read_records", fail)
    ran = run("report", "records.jsonl")
    assert (ran.code, ran.err) == (1, "error: update 7: expected finite gradients, found [none].\n")


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "longstride", "decoders", "-m", "nowhere"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "error: nowhere: expected a model folder, found nothing.\n"
    assert done.stdout == ""
