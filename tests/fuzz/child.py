"""Carries one case out, in a process of its own that ends with it; what came of it is left in a file.

The machine is safe from it: it works in the folder of the case, and may take no more memory than it is allowed. Root
gives up the right to pass over permissions, so that what is locked for others is locked for it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import io
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NoReturn

from longstride.cli.entry import INTERRUPTED
from tests.fuzz import checks, odd_paths
from tests.fuzz.checks import Finding
from tests.fuzz.drawing import Case, draw
from tests.fuzz.grammar import Command
from tests.fuzz.material import Material

HERE = "here"
"""The working directory inside the folder of a case; beside it lies what the harness writes."""
SAID = ("stdin", "stdout", "stderr", "stack", "result.json")
DATA = 4 << 30
"""Bytes a case may ask for, beyond what the process had."""


@dataclass
class Outcome:
    """What came of a case."""

    argv: list[str]
    faults: list[str]
    code: int | None = None
    findings: list[Finding] = field(default_factory=list)
    out: str = ""
    err: str = ""
    stdin: str = "file"
    stdout: str = "file"
    disk: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    interrupt: float | None = None
    seconds: float = 0.0


def carry_out(
    seed: int,
    number: int,
    folder: Path,
    material: Material,
    commands: list[Command],
    entry: Callable[[], None],
    debug: bool = False,
) -> None:
    """Draw the case and run it; called in a forked process, which ends after it."""
    os.setpgid(0, 0)
    (folder / HERE).mkdir(parents=True)
    (folder / "tmp").mkdir()
    os.environ["TMPDIR"] = str(folder / "tmp")
    os.chdir(folder / HERE)
    faulthandler.enable((folder / "stack").open("w"), all_threads=False)
    faulthandler.register(signal.SIGUSR1, (folder / "stack").open("a"), all_threads=False)
    case = draw(seed, number, material, commands)
    case.argv += ["--debug"] if debug else []
    outcome = Outcome(case.argv, case.faults, disk=case.disk, environment=case.environment, stdout=case.stdout)
    outcome.stdin, outcome.interrupt = "closed" if case.stdin is None else "file", case.interrupt
    _keep(folder, outcome)  # who was at work, should nothing more come
    _limit()
    before = checks.snapshot(Path())
    _streams(folder, case)
    os.environ |= case.environment
    if case.disk is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (case.disk, resource.RLIM_INFINITY))
    outcome.code, raised = _run(case, entry)
    if raised:
        outcome.findings.append(raised)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception as error:
            if stream is sys.stdout and not raised and case.stdout == "file":
                outcome.findings.append(Finding("unflushed", f"{type(error).__name__}: {error}", "at exit"))
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE):
        resource.setrlimit(kind, resource.getrlimit(kind)[1:] * 2)
    outcome.out = _read(folder / "stdout")
    outcome.err = _read(folder / "stderr")
    if case.stdout == "terminal":
        outcome.err += _read(folder / "shown")
    if not outcome.findings:
        outcome.findings = checks.check(case, outcome.code, outcome.out, outcome.err, before, checks.snapshot(Path()))
    _keep(folder, outcome)


def _run(case: Case, entry: Callable[[], None]) -> tuple[int, Finding | None]:
    """The exit code as the interpreter would give it, and what escaped."""
    sys.argv = ["longstride", *case.argv]
    signal.signal(signal.SIGALRM, _press)
    leave = os._exit

    def ended(code: int) -> NoReturn:
        if code == INTERRUPTED:  # maybe out of where no exception can be passed on
            leave(code)
        sys.exit(code)

    os._exit = ended  # type: ignore[assignment]
    try:
        signal.setitimer(signal.ITIMER_REAL, 0 if case.interrupt is None else max(case.interrupt, 1e-6))
        entry()
        code: Any = 0
    except SystemExit as raised:
        code = raised.code
    except KeyboardInterrupt as error:
        found = _escaped(error)
        return 130, found if found.place.startswith("cli") or "/longstride/" in found.traceback else None
    except BaseException as error:
        return 1, _escaped(error)
    finally:
        os._exit = leave
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
    return (code if isinstance(code, int) else int(code is not None)), None


def _press(number: int, frame: FrameType | None) -> None:
    """Ctrl-C, as whoever handles it just now is told."""
    signal.raise_signal(signal.SIGINT)


def _escaped(error: BaseException) -> Finding:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"{os.sep}longstride{os.sep}" in frame.filename]
    last = (ours or list(frames))[-1]
    place = f"{last.filename.rpartition(f'{os.sep}longstride{os.sep}')[2]}:{last.lineno}"
    told = "".join(traceback.format_exception(error))
    return Finding(type(error).__name__, f"{type(error).__name__}: {error}"[:500], place, told)


def _streams(folder: Path, case: Case) -> None:
    """Standard input, output and error become files of the case, or something worse."""
    (folder / "stdin").write_bytes(case.stdin or b"")
    (folder / "stdout").touch()
    for name, number, flags in (("stdin", 0, os.O_RDONLY), ("stdout", 1, os.O_RDWR), ("stderr", 2, os.O_RDWR)):
        opened = os.open(folder / name, flags | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = io.TextIOWrapper(_buffered(0), encoding="utf-8")
    if case.stdout == "full":
        os.dup2(os.open(odd_paths.device("full", folder), os.O_WRONLY), 1)
    elif case.stdout == "terminal":
        _terminal(folder)
    elif case.stdout == "gone":
        reading, writing = os.pipe()
        os.dup2(writing, 1)
        os.close(writing)
        os.close(reading)
    sys.stdout = io.TextIOWrapper(_buffered(1), encoding="utf-8")
    sys.stderr = io.TextIOWrapper(_buffered(2), encoding="utf-8", errors="backslashreplace", line_buffering=True)
    # At last, since the next file to be opened takes the number; None is what the interpreter makes of a closed one.
    if case.stdin is None:
        os.close(0)
        sys.stdin = None  # type: ignore[assignment]
    if case.stdout == "closed":
        os.close(1)
        sys.stdout = None  # type: ignore[assignment]


def _terminal(folder: Path) -> None:
    """Output and errors to a terminal, of which another process keeps what it shows."""
    mine, theirs = os.openpty()
    if os.fork() == 0:
        os.close(theirs)
        with (folder / "shown").open("wb") as file:
            while True:  # until nobody is left who could write
                try:
                    file.write(os.read(mine, 65536))
                    file.flush()
                except OSError:
                    os._exit(0)
    os.close(mine)
    for number in (1, 2):
        os.dup2(theirs, number)
    os.close(theirs)


def _buffered(number: int) -> BinaryIO:
    return open(number, "rb" if number == 0 else "wb", closefd=False)


def _limit() -> None:
    """No more memory than allowed, no core files, and permissions as everybody has them."""
    status = Path("/proc/self/status").read_text()
    had = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (had + DATA, had + 2 * DATA))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.geteuid() == 0:
        _obey_permissions()


def _obey_permissions() -> None:
    """Take the capabilities DAC_OVERRIDE and DAC_READ_SEARCH from a root process (capset, version 3)."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None)
    if libc.capget(header, data) == 0:
        for place in (0, 1):  # effective, permitted
            data[place] &= ~((1 << 1) | (1 << 2))
        libc.capset(header, data)


def _keep(folder: Path, outcome: Outcome) -> None:
    made = folder / "result.new"
    made.write_text(json.dumps(asdict(outcome)), encoding="ascii")
    made.replace(folder / "result.json")


def _read(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")[:200_000]


def read(folder: Path) -> Outcome | None:
    """What a case left."""
    try:
        values: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="ascii"))
    except FileNotFoundError:
        return None
    values["findings"] = [Finding(**one) for one in values["findings"]]
    return Outcome(**values)
