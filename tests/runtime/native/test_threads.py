"""Threads that share work: a program in C does what Python is too slow for."""

from __future__ import annotations

import subprocess
from pathlib import Path

from longstride.runtime.native.compiling import find_compiler
from longstride.runtime.native.structures import SOURCE
from tests.runtime.native.harness import needs_compiler

pytestmark = needs_compiler()


def test_every_part_is_done_once(tmp_path: Path) -> None:
    """By any number of threads and callers, awake or asleep, parts that share work again, and after a fork."""
    program = tmp_path / "check_threads"
    sources = [str(Path(__file__).with_name("check_threads.c")), str(SOURCE / "threads.c")]
    command = [find_compiler(), "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{SOURCE}"]
    subprocess.run([*command, *sources, "-o", str(program)], check=True, timeout=120)
    done = subprocess.run([str(program), "300"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
