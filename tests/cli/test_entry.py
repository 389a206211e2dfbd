"""How the command begins and ends: Ctrl-C at any moment, streams that are closed or full."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Run

COMMAND = [sys.executable, "-m", "longstride"]

LISTENING = """
import sys
sys.stderr.write("listening\\n")
sys.stderr.flush()
from longstride.cli.entry import run
run()
"""
"""Says when Python itself has started, which nobody can look after."""


@pytest.mark.parametrize("share", [0.2, 0.8, 0.95])
def test_ctrl_c_is_heard_at_any_moment(share: float, how_long: float) -> None:
    """Imports included: after this share of the time that the command takes."""
    with _started() as running:
        time.sleep(max(0.05, share * how_long))
        running.send_signal(signal.SIGINT)
        said, told = running.communicate(timeout=60)
    assert (running.returncode, told) == (130, "Interrupted.\n") or (running.returncode, said, told) == (
        0,
        "Guten Morgen!\n",
        "",
    )


@pytest.fixture(scope="module")
def how_long() -> float:
    """Seconds that one sentence takes, imports included."""
    begun = time.perf_counter()
    with _started() as running:
        assert running.communicate(timeout=60)[0] == "Guten Morgen!\n"
    return time.perf_counter() - begun


def _started() -> subprocess.Popen[str]:
    running = subprocess.Popen(
        [sys.executable, "-c", LISTENING, "translate", "--decoder", "greedy"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdin is not None
    assert running.stderr is not None
    running.stdin.write("Good morning.\n")
    assert running.stderr.readline() == "listening\n"
    return running


def test_ctrl_c_is_heard_while_a_command_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lines")
    running = subprocess.Popen(
        [*COMMAND, "translate", "-i", tmp_path / "lines", "-o", tmp_path / "out"], stderr=subprocess.PIPE, text=True
    )
    with (tmp_path / "lines").open("w"):  # opens when the command does
        running.send_signal(signal.SIGINT)
        told = running.communicate(timeout=60)[1]
    assert (running.returncode, told) == (130, "Interrupted.\n")
    assert [path.name for path in tmp_path.iterdir()] == ["lines"]


def test_what_is_to_be_done_at_exit_is_done() -> None:
    """Python is left without being taken apart; threads that still work are waited for."""
    code = (
        "import atexit, sys, threading, time; from longstride.cli.entry import run; sys.argv = ['', '--version']; "
        "atexit.register(print, 'at exit'); "
        "{}threading.Thread(target=lambda: (time.sleep(0.5), print('worked'))).start(); run()"
    )
    for waiting, last in (("", ["at exit", "worked"]), ("0 and ", ["at exit"])):
        ran = subprocess.run(
            [sys.executable, "-c", code.format(waiting)], capture_output=True, text=True, check=True
        ).stdout.split("\n")
        told = [line for line in ran[:-1] if not line.startswith("longstride ")]  # on a busy machine not the first
        assert sorted(told) == last


def shell(line: str, **more: str) -> subprocess.CompletedProcess[str]:
    """What a shell makes of a line about the command $LONGSTRIDE."""
    given = {**os.environ, "LONGSTRIDE": " ".join(COMMAND), **more}
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, env=given)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", ["--version", "--help", "bench --help"])
def test_a_full_disk_is_said(arguments: str) -> None:
    ran = shell(f"$LONGSTRIDE {arguments} > /dev/full")
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: ")
    assert ran.stderr.endswith("No space left on device.\n")
    assert ran.stderr.count("\n") == 1


def test_closed_streams_are_said() -> None:
    ran = shell("$LONGSTRIDE --version >&-")
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert "Bad file descriptor" in ran.stderr
    ran = shell("$LONGSTRIDE --version 2>&- <&-")
    assert (ran.returncode, ran.stdout.count("\n")) == (0, 1)
    ran = shell("$LONGSTRIDE nonsense 2>&- >&- <&-")
    assert ran.returncode == 2


def test_a_reader_that_leaves_is_no_failure_to_speak_of() -> None:
    ran = shell("set -o pipefail; $LONGSTRIDE --help | true")
    assert (ran.returncode, ran.stderr) == (1, "")


def test_files_are_not_taken_for_streams_that_were_closed(run: Run) -> None:
    """The number of a closed stream would be given to the next file that is opened."""
    code = (
        "import os, sys; from longstride.cli import entry; entry._open_streams(); "
        "found = os.open('/dev/null', os.O_RDONLY); os._exit(found > 2 and sys.stdin.fileno() == 0)"
    )
    assert shell(f'{sys.executable} -c "{code}" <&- >&- 2>&-').returncode == 1


def test_names_that_cannot_be_shown_are_escaped() -> None:
    name = r"no\nsuch\xff\u2028\x1b[31m\u202e[/red]"
    ran = shell(f"$LONGSTRIDE lattice inspect -m $'{name}'")
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.isascii()
    assert ran.stderr.startswith(f"error: {name.replace('xff', 'udcff')}: ")


TELLING = """
from longstride.cli import main
def interrupted(error, debug):
    raise KeyboardInterrupt
main.tell = interrupted
from longstride.cli.entry import run
run()
"""


def test_ctrl_c_while_an_error_is_told_is_an_interruption_too() -> None:
    ran = subprocess.run([sys.executable, "-c", TELLING, "no-such-command"], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "Interrupted.\n")
