"""How commands speak: results to stdout, everything else to stderr; a live line on a terminal, plain lines else."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)
quiet = False
"""Print results, warnings and errors only (--quiet)."""


def live() -> bool:
    """Return whether to draw progress: stderr is a terminal and --quiet was not given."""
    return err.is_terminal and not quiet


def say(text: str) -> None:
    """A line to a person; where it cannot be said, the work goes on."""
    if not quiet:
        with suppress(OSError):
            err.print(text, markup=False)


def warn(text: str) -> None:
    """A line that should not be overlooked."""
    with suppress(OSError):
        err.print(f"[yellow]warning:[/yellow] {one_line(text)}")


def one_line(text: str) -> str:
    """Text that may quote names of files and arguments, as one line of markup: what cannot be seen is escaped."""
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return escape(shown)


class Bar:
    """Counts towards a total: a bar with a rate and time left on a terminal, otherwise a plain line every tenth
    (`lines`) or nothing."""

    def __init__(self, what: str, total: int | None, lines: bool = True) -> None:
        self._what, self._lines = what, lines
        self._total = total
        self._told = 0
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=err,
            transient=True,
            redirect_stdout=False,  # results go where they were sent, though somebody looks on
            redirect_stderr=False,
            disable=not live(),
        )
        self._task = self._progress.add_task(what, total=total, rate="")

    def to(self, done: int, total: int | None = None, note: str = "") -> None:
        """So much is done."""
        self._total = total or self._total
        task = self._progress.tasks[0]
        speed = f"{task.speed:,.0f}/s" if task.speed else ""
        self._progress.update(self._task, completed=done, total=self._total, rate=note or speed)
        if self._lines and not err.is_terminal and self._total:
            tenth = done * 10 // self._total
            if tenth > self._told:
                self._told = tenth
                say(f"{self._what}: {done:,} of {self._total:,} {note}".rstrip())

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()


class Stages:
    """Work in named stages: a bar for the one at work on a terminal, one plain line per stage otherwise."""

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._stage = ""

    def to(self, stage: str, done: int, total: int) -> None:
        """So much of this stage is done."""
        if stage != self._stage:
            self.close()
            self._stage = stage
            if live():
                self._bar = Bar(stage, total or None).__enter__()
            else:
                say(stage)
        if self._bar is not None:
            self._bar.to(done, total)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.__exit__()
        self._bar = None

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def commit() -> tuple[str, bool]:
    """The commit of the code that runs, and whether it was changed since.

    Where the code is no checkout (a copy on another machine), the variable LONGSTRIDE_COMMIT may name it.
    """

    def git(*words: str) -> str:
        # No lock on the index, which a process that is killed would leave to its user.
        command = ["git", "--no-optional-locks", "-C", str(Path(__file__).parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        told = os.environ.get("LONGSTRIDE_COMMIT", "")
        return told.encode("utf-8", "replace").decode(), False  # is written to records and model folders
