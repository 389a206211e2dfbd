"""Threads that share work: a program in C does what Python is too slow for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from longstride.runtime.native.building import SOURCE, find_compiler


def test_every_part_is_done_once(tmp_path: Path) -> None:
    """By any number of threads and callers, awake or asleep, parts that share work again, and after a fork."""
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("there is no C compiler")
    program = tmp_path / "check_threads"
    sources = [str(Path(__file__).with_name("check_threads.c")), str(SOURCE / "threads.c")]
    command = [*compiler, "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{SOURCE}"]
    subprocess.run([*command, *sources, "-o", str(program)], check=True, timeout=120)
    done = subprocess.run([str(program), "300"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
