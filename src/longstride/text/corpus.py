"""Text files, one segment per line: plain, .gz or .xz, strict UTF-8. Knows no tokenizer.

A line ends at "\\n" and nowhere else: U+2028, U+0085, vertical tabs and form feeds are text. One "\\r" before the "\\n"
is taken off, so that files from Windows read the same, and so is a byte order mark at the very beginning; every other
character comes through as it is.
"""

from __future__ import annotations

import codecs
import gzip
import lzma
import math
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from longstride.contract import InputError
from longstride.text.files import output_file

_Path = str | os.PathLike[str]
_UTF16 = "UTF-16, as programs on Windows write it; save it as UTF-8, or convert it by iconv -f UTF-16 -t UTF-8"
_NOT_TEXT = {
    codecs.BOM_UTF16_LE: _UTF16,
    codecs.BOM_UTF16_BE: _UTF16,
    b"\x1f\x8b": "what gzip compressed; unpack it, or let its name end in .gz",
    b"PK\x03\x04": "a zip archive, as docx and xlsx files are; save it as text",
    b"%PDF": "a PDF; save it as text",
    b"\xfd7zXZ": "what xz compressed; unpack it, or let its name end in .xz",
}
"""What files begin with that people take for text."""
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


def read_lines(path: _Path) -> Iterator[str]:
    """The lines of a file, without their ends. Errors name the file and the line, counted from 1."""
    with open_binary(path) as file:
        yield from decode_lines(file, str(path))


@contextmanager
def open_binary(path: _Path) -> Iterator[IO[bytes]]:
    """A file of text, to be read as bytes that are no longer compressed; what goes wrong names it."""
    try:
        with _OPENERS.get(Path(path).suffix, open)(path, "rb") as file:
            yield file
    except FileNotFoundError as error:
        raise InputError(f"{path}: expected a text file, found none.") from error
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: expected a complete compressed file, found a damaged one ({error}).") from error
    except OSError as error:
        raise InputError(f"{path}: could not be read ({error.strerror or error}).") from error


def decode_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of an open binary file, such as standard input; `name` stands for it in errors."""
    for number, raw in enumerate(file, start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            for beginning, kind in _NOT_TEXT.items() if number == 1 else ():
                if raw.startswith(beginning):
                    raise InputError(f"{name}: expected UTF-8, found {kind}.") from error
            found = raw[error.start]
            raise InputError(
                f"{name}, line {number}: expected UTF-8, found byte 0x{found:02x} at byte {error.start + 1}."
            ) from error
        if number == 1:
            line = line.removeprefix("\ufeff")  # a byte order mark, which editors on Windows write, is no text
        yield line.removesuffix("\n").removesuffix("\r")


@dataclass(frozen=True)
class Portion:
    """How much of a long file is done at a time, beside a bound on its records that others set."""

    characters: float = math.inf
    """no more records once so many have come"""
    least: int = 1
    """but so many records, if there are any left: sentences side by side have to be many"""

    def full(self, records: int, characters: int) -> bool:
        """Whether these are enough."""
        return records >= self.least and characters >= self.characters

    def records(self, most: int, characters: float) -> int:
        """Return how many records of so many characters each are a portion of at most so many."""
        return int(min(most, max(self.least, self.characters / max(1.0, characters))))


WHATEVER = Portion()
"""Bounded by the number of records alone."""


def read_parallel(source: _Path, target: _Path) -> Iterator[tuple[str, str]]:
    """The lines of two files side by side; files of different line counts are an error that names both counts."""
    sources, targets = read_lines(source), read_lines(target)
    pairs = 0
    while True:
        left, right = next(sources, None), next(targets, None)
        if left is None or right is None:
            break
        pairs += 1
        yield left, right
    more_left, more_right = (int(line is not None) for line in (left, right))
    if more_left or more_right:
        left_lines = pairs + more_left + sum(1 for _ in sources)
        right_lines = pairs + more_right + sum(1 for _ in targets)
        raise InputError(
            f"Expected as many target lines as source lines, found {left_lines} in {source} and {right_lines} in "
            f"{target}."
        )


def write_lines(path: _Path, lines: Iterable[str]) -> int:
    """Write lines, compressed if the name ends in .gz or .xz, whole or not at all; returns how many there were."""
    count = 0
    with lines_file(path) as file:
        for count, line in enumerate(lines, start=1):
            if "\n" in line:
                raise InputError(f"{path}, line {count}: expected one line of text, found a line break inside it.")
            if count == 1 and line.startswith("\ufeff"):
                file.write(codecs.BOM_UTF8)  # one is taken off when the file is read
            try:
                file.write(line.encode("utf-8") + b"\n")
            except UnicodeEncodeError as error:
                raise InputError(
                    f"{path}, line {count}: expected text, found a lone surrogate at character {error.start + 1}."
                ) from error
    return count


@contextmanager
def lines_file(path: _Path) -> Iterator[IO[bytes]]:
    """A file to write lines to, compressed if the name ends in .gz or .xz, whole or not at all."""
    ending = Path(path).suffix
    with output_file(path) as plain:
        if ending == ".xz":
            with lzma.open(plain, "wb") as compressed:
                yield cast(IO[bytes], compressed)
        elif ending == ".gz":
            # A name and time stamp inside would make equal contents unequal files.
            with gzip.GzipFile(filename="", mode="wb", fileobj=plain, mtime=0) as zipped:
                yield cast(IO[bytes], zipped)
        else:
            yield plain
