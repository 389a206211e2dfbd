"""A process for every case, a few at a time: what hangs is killed, what crashes is told apart, the rest is read."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tests.fuzz import child
from tests.fuzz.checks import Finding
from tests.fuzz.child import Outcome
from tests.fuzz.grammar import Command
from tests.fuzz.material import Material

SECONDS = 20.0
"""A case that has worked for so long hangs; one that only waited, on a busy machine, is given"""
PATIENCE = 3.0
"""times as long."""
INTERNAL = "internal error"
"""What the command line says of an exception that nobody expected."""
MEMORY = 2 << 30
"""Bytes that a case may hold, beyond what the process had."""


@dataclass
class Running:
    """A case at work."""

    number: int
    folder: Path
    began: float
    asked: bool = False
    """for its stack"""


@dataclass(frozen=True)
class Pool:
    """Runs cases of one seed below one folder."""

    seed: int
    folder: Path
    material: Material
    commands: list[Command]
    entry: Callable[[], None]
    workers: int = 1
    keep: bool = False
    """the folders of cases"""
    debug: bool = False
    """with --debug at the end of every command line"""

    def outcomes(self, numbers: Iterator[int]) -> Iterator[tuple[int, Outcome]]:
        """What came of each case, as they end; numbers are drawn when there is room."""
        base = _resident()
        running: dict[int, Running] = {}
        try:
            while True:
                while len(running) < self.workers and (number := next(numbers, None)) is not None:
                    one = Running(number, self.folder / str(number), time.monotonic())
                    running[self._fork(one)] = one
                if not running:
                    return
                for process in list(running):
                    ended, status, used = os.wait4(process, os.WNOHANG)
                    if ended:
                        one = running.pop(process)
                        yield one.number, self._outcome(one, process, status, (used.ru_maxrss << 10) - base)
                _look_after(running)
                time.sleep(0.002)
        finally:
            for process in running:
                _kill(process)

    def _fork(self, one: Running) -> int:
        process = os.fork()
        if process == 0:
            code = 99
            try:
                child.carry_out(self.seed, one.number, one.folder, self.material, self.commands, self.entry, self.debug)
                code = 0
            except BaseException:
                (one.folder / "harness").write_text(traceback.format_exc(), encoding="utf-8", errors="replace")
            finally:
                os._exit(code)
        return process

    def _outcome(self, one: Running, process: int, status: int, memory: int) -> Outcome:
        _kill_group(process)  # whatever it left behind
        found = child.read(one.folder) or Outcome([], [])
        stack = "\n".join(_read(one.folder / "stack").splitlines()[:6])  # the innermost call comes first
        command = " ".join(found.argv[:1])
        found.seconds = time.monotonic() - one.began
        if one.asked:
            kind = "hang" if found.argv else "harness"  # there is a command line once it was drawn
            found.findings = [Finding(kind, f"at work for {SECONDS:.0f} s or more", _place(stack, command), stack)]
        elif os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            said = _read(one.folder / "stderr").rstrip().rpartition("\n")[2]
            found.findings = [Finding(f"crash {name}", said or name, _place(stack, command), stack)]
        elif os.WEXITSTATUS(status) == 130 and found.interrupt is not None:
            found.code = 130  # left at once, without tidying up
        elif os.WEXITSTATUS(status):
            told = _read(one.folder / "harness") or f"ended by itself with exit code {os.WEXITSTATUS(status)}"
            found.findings = [Finding("harness", told.rstrip().rpartition("\n")[2], command, told)]
        elif memory > MEMORY:
            found.findings.append(Finding("memory", f"took {memory / 2**30:.1f} GiB more", command))
        if not self.keep:
            remove(one.folder)
        if any(INTERNAL in finding.told for finding in found.findings) and not self.debug:
            found.findings = self._traced(one.number) or found.findings
        return found

    def _traced(self, number: int) -> list[Finding]:
        """The same case with --debug, for the traceback that a person is not shown."""
        ((_, found),) = replace(self, folder=self.folder / "traced", debug=True).outcomes(iter([number]))
        told = found.err[found.err.rfind("Traceback (most recent") :].rstrip()
        if not told.startswith("Traceback"):
            return []
        last = re.findall(r"^(\w[\w.]*)(?:: (.*))?$", told, re.MULTILINE)[-1:]
        kind, said = last[0] if last else (INTERNAL, "")
        return [Finding(kind.rpartition(".")[2], f"{INTERNAL}: {kind}: {said}"[:500], _innermost(told), told)]


def _look_after(running: dict[int, Running]) -> None:
    """Ask what hangs where it is, then end it."""
    for process, one in running.items():
        gone = time.monotonic() - one.began
        if one.asked:
            if gone > SECONDS * PATIENCE * 2 or (one.folder / "stack").stat().st_size:
                time.sleep(0.1)
                _kill(process)
        elif gone > SECONDS and (gone > SECONDS * PATIENCE or _worked(process) > SECONDS * 0.9):
            one.asked = True
            os.kill(process, signal.SIGUSR1)


def _kill(process: int) -> None:
    """A case at work, and the processes that it started."""
    _kill_group(process)
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _kill_group(process: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def _worked(process: int) -> float:
    """Processor time of a process and of those it waited for, in seconds."""
    fields = _read(Path(f"/proc/{process}/stat")).rpartition(")")[2].split()
    return sum(int(one) for one in fields[11:15]) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _innermost(told: str) -> str:
    found = re.findall(r'File ".*?/longstride/(\S+?)", line (\d+)', told)
    return ":".join(found[-1]) if found else "?"


def _place(stack: str, otherwise: str) -> str:
    """The innermost line of ours in a stack as faulthandler writes it: innermost first."""
    found = re.search(r'File ".*?/longstride/(\S+?)", line (\d+)', stack)
    return f"{found[1]}:{found[2]}" if found else otherwise


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def remove(folder: Path) -> None:
    """A folder and all in it, locked parts too."""
    for root, folders, _ in os.walk(folder):
        for name in folders:
            path = Path(root) / name
            if not path.is_symlink():
                path.chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)
