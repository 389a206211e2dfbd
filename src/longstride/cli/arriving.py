"""Lines in portions: of a file many at a time, of a pipe or terminal what has arrived: each line is answered."""

from __future__ import annotations

import os
import queue
import stat
import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO

from longstride.cli.streams import STDIN, is_standard, standard_input
from longstride.contract import InputError
from longstride.text.corpus import decode_lines, read_lines

READ = 1 << 16
"""Bytes asked for at a time"""


class Lines:
    """The lines of a file (none or "-": standard input), in portions of at most `most`."""

    def __init__(self, path: Path | None, most: int) -> None:
        self.file = None if is_standard(path) else path
        self._most = most
        if self.file is not None and not os.path.lexists(self.file):
            raise InputError(f"{self.file}: expected a text file, found none.")
        stream = standard_input() if self.file is None else None
        self._live = not _regular(stream if self.file is None else self.file)
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
            found = next(self._lines, None) if not self._live else self._queue.get()
            if isinstance(found, BaseException):
                raise found
            if found is None:
                raise InputError(f"{self.file or STDIN}: expected the {number} lines of last time, found {place}.")
            yield found

    def portions(self, full: bool = False) -> Iterator[list[str]]:
        """All lines in order; `full` waits until a portion is as large as it may be."""
        if not self._live:
            while portion := list(islice(self._lines, self._most)):
                yield portion
            return
        waiting: str | BaseException | None = ""
        while waiting is not None:
            waiting = self._queue.get()
            portion = []
            while isinstance(waiting, str):
                portion.append(waiting)
                if len(portion) == self._most or (self._queue.empty() and not full):
                    break
                waiting = self._queue.get()
            if portion:
                yield portion
            if isinstance(waiting, BaseException):
                raise waiting

    def _fetch(self) -> None:
        try:
            for line in self._lines:
                self._queue.put(line)
        except BaseException as error:
            self._queue.put(error)
        else:
            self._queue.put(None)


def _regular(file: Path | IO[bytes] | None) -> bool:
    """Whether all of it is there already; what has no descriptor, or cannot be looked at, is taken to be."""
    try:
        mode = os.stat(file if isinstance(file, Path) else file.fileno()).st_mode  # type: ignore[union-attr]
    except (OSError, ValueError):
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _raw_lines(descriptor: int) -> Iterator[bytes]:
    """Lines as they come, past Python's own buffer: a thread that waits in it would hold its lock when we leave."""
    rest = b""
    while read := os.read(descriptor, READ):
        *lines, rest = (rest + read).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if rest:
        yield rest
