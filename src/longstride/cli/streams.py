"""Standard input and output, and the files that options name: `-` stands for the one or the other everywhere."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import IO, overload

from longstride.contract import InputError, OptionError, WorkError
from longstride.text.files import check_folder_writable, check_writable

STDIN = "standard input"
STANDARD = "-"

_spent: list[object] = []
"""The standard input that was already read"""


def is_standard(path: Path | None) -> bool:
    """Whether an option that is left out or `-` means standard input or output."""
    return path is None or str(path) == STANDARD


def standard_input() -> IO[bytes]:
    """Standard input; a closed one is refused."""
    if _closed(sys.stdin, os.O_WRONLY):
        raise InputError(f"{STDIN}: expected text, found it closed.")
    return sys.stdin.buffer


@overload
def input_file(path: Path) -> Path: ...


@overload
def input_file(path: Path | None) -> Path | None: ...


def input_file(path: Path | None) -> Path | None:
    """A file that can be read as often as need be: what comes by standard input is kept in one until the end."""
    if path is None or not is_standard(path):
        return path
    stream = standard_input()
    if any(one is sys.stdin for one in _spent):
        raise OptionError(f"{STANDARD} expects to be named once, since {STDIN} is read once, found it again.")
    _spent[:] = [sys.stdin]
    folder = tempfile.mkdtemp(prefix="longstride-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    kept = Path(folder) / "stdin"
    with kept.open("wb") as file:
        shutil.copyfileobj(stream, file)
    return kept


def result_files(*paths: Path | None) -> tuple[Path | None, ...]:
    """The files that results go to, `-` as standard output; what could not be written is refused before the work."""
    if _closed(sys.stdout, os.O_RDONLY):
        raise WorkError("standard output: expected somewhere to write results, found it closed.")
    found = tuple(Path("/dev/stdout") if path is not None and is_standard(path) else path for path in paths)
    check_writable(*found)
    return found


def record_file(path: Path | None, name: str | None = None) -> Path | None:
    """A file that records are appended to, refused before the work if it holds anything else; `name` is for them."""
    from longstride.bench.record_files import check_records

    if name is not None and path is None:
        raise OptionError("--name expects --record FILE beside it, found none.")
    (found,) = result_files(path)
    check_records(found)
    return found


def _closed(stream: IO[str] | None, other: int) -> bool:
    """Whether a stream is closed, or stands on a file that is open the `other` way alone, in a closed one's stead."""
    if stream is None or stream.closed:
        return True
    try:
        import fcntl

        return fcntl.fcntl(stream.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == other
    except (AttributeError, ImportError, OSError, ValueError):  # no descriptor: a stream of somebody's own
        return False


def result_folder(path: Path) -> Path:
    """A folder that results go to; one that could not be written is refused before the work."""
    if is_standard(path):
        raise OptionError(f"--output expects a folder, found {str(path)!r}, which stands for standard output.")
    check_folder_writable(path)
    return path
