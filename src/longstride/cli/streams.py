"""Standard input and output, and the files that options name: `-` stands for the one or the other everywhere.

Lines of a file come many at a time, those of a pipe or terminal as they arrive: each is answered.
"""

from __future__ import annotations

import atexit
import os
import queue
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO, cast, overload

from longstride.contract import InputError, OptionError, WorkError
from longstride.text.corpus import WHATEVER, decode_lines, open_binary, read_lines
from longstride.text.files import check_folder_writable, check_writable

STDIN = "standard input"
STANDARD = "-"
READ = 1 << 16
"""Bytes asked for at a time"""

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
        # Not by copyfileobj: a terminal's end, Ctrl-D, would have to be typed twice.
        file.writelines(iter(partial(cast(BufferedReader, stream).read1, READ), b""))
    return kept


def all_of(path: Path | None) -> bytes:
    """All bytes of a file (none or "-": standard input), no longer compressed."""
    if path is None or is_standard(path):
        return standard_input().read()
    with open_binary(path) as file:
        return file.read()


def check_file(path: Path | None) -> None:
    """Refuse a file to read that is not there, or is a folder."""
    if path is None or is_standard(path):
        return
    if not os.path.lexists(path) or os.path.isdir(path):
        raise InputError(f"{path}: expected a text file, found {'a folder' if os.path.isdir(path) else 'none'}.")


def result_files(*paths: Path | None) -> tuple[Path | None, ...]:
    """The files that results go to, `-` as standard output; what could not be written is refused before the work."""
    if _closed(sys.stdout, os.O_RDONLY):
        raise WorkError("standard output: expected somewhere to write results, found it closed.")
    found = tuple(Path("/dev/stdout") if path is not None and is_standard(path) else path for path in paths)
    check_writable(*found)
    return found


def keep_what_is_read(option: str, written: Path | None, *read: Path | None) -> None:
    """Refuse to write over a regular file that is read for the same work, and would be lost."""
    for one in read:
        if written is None or one is None or is_standard(one) or not (os.path.isfile(written) and os.path.isfile(one)):
            continue
        if os.path.samefile(written, one):
            raise OptionError(f"{option} expects another file than those that are read, found {written}, one of them.")


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


class Lines:
    """The lines of a file (none or "-": standard input), in portions of at most `most`."""

    def __init__(self, path: Path | None, most: int) -> None:
        self.file = None if is_standard(path) else path
        self._most = most
        self.portion = WHATEVER
        """where portions end before that"""
        check_file(self.file)
        stream = standard_input() if self.file is None else None
        self._live = not is_regular(stream if self.file is None else self.file)
        self.typed = stream is not None and stream.isatty()
        """by a person, on a terminal"""
        if self.file is not None:
            lines: Iterable[str] = read_lines(self.file)
        elif self._live:
            lines = decode_lines(_raw_lines(stream.fileno()), STDIN)  # type: ignore[union-attr]
        else:
            lines = decode_lines(stream, STDIN)  # type: ignore[arg-type]
        self._lines = iter(lines)
        self._queue: queue.Queue[str | BaseException | None] = queue.Queue(most)
        if self._live:
            threading.Thread(target=self._fetch, daemon=True).start()

    @property
    def total(self) -> int | None:
        """How many lines there are, where that can be counted."""
        if self.file is None or self._live:
            return None
        return sum(1 for _ in read_lines(self.file))

    def skip(self, number: int) -> Iterator[str]:
        """The next `number` lines; too few are an error."""
        for place in range(number):
            found = self._next()
            if isinstance(found, BaseException):
                raise found
            if found is None:
                raise InputError(f"{self.file or STDIN}: expected the {number} lines of last time, found {place}.")
            yield found

    def portions(self, full: bool = False) -> Iterator[list[str]]:
        """All lines in order; `full` waits until a portion is as large as it may be."""
        waiting: str | BaseException | None = ""
        while waiting is not None:
            waiting, portion, characters = self._next(), [], 0
            while isinstance(waiting, str):
                portion.append(waiting)
                characters += len(waiting)
                if len(portion) == self._most or self.portion.full(len(portion), characters):
                    break
                if self._live and self._queue.empty() and not full:
                    break
                waiting = self._next()
            if portion:
                yield portion
            if isinstance(waiting, BaseException):
                raise waiting

    def _next(self) -> str | BaseException | None:
        return self._queue.get() if self._live else next(self._lines, None)

    def _fetch(self) -> None:
        try:
            for line in self._lines:
                self._queue.put(line)
        except BaseException as error:
            self._queue.put(error)
        else:
            self._queue.put(None)


def is_regular(file: Path | IO[bytes] | None) -> bool:
    """Whether all of it is there already; what has no descriptor, or cannot be looked at, is taken to be."""
    try:
        mode = os.stat(file if isinstance(file, Path) else file.fileno()).st_mode  # type: ignore[union-attr]
    except (OSError, ValueError):
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _raw_lines(descriptor: int) -> Iterator[bytes]:
    """Lines as they come, past Python's own buffer: a thread that waits in it would hold its lock when we leave."""
    begun: list[bytes] = []  # of a line whose end is yet to come
    while read := os.read(descriptor, READ):
        *lines, rest = read.split(b"\n")
        for line in lines:
            yield b"".join([*begun, line, b"\n"])
            begun = []
        begun.append(rest)
    if line := b"".join(begun):
        yield line
