"""The file that `translate --drafts` names: an earlier output, line by line, or a translation memory that is asked."""

from __future__ import annotations

from functools import cached_property
from itertools import islice
from pathlib import Path

from longstride.cli.streams import STDIN, Lines, input_file, is_regular, is_standard
from longstride.contract import InputError, OptionError
from longstride.text.corpus import read_lines
from longstride.text.files import file_sha256
from longstride.text.translation_memory import kind, read_memory


class DraftFile:
    """Drafts for lines of the input, in their order."""

    def __init__(self, path: Path, lines: Lines) -> None:
        if is_standard(path) and lines.file is None:
            raise OptionError(f"--drafts expects a file where --input is {STDIN}, found {str(path)!r}.")
        self._name, self._path, self._input = path, input_file(path), lines.file or STDIN
        self._memory = read_memory(self._path) if kind(self._path) else None
        if self._memory is not None:
            return
        self._lines, self._given = read_lines(self._path), 0
        if is_regular(self._path) and (wanted := lines.total) is not None:
            self._check(wanted, sum(1 for _ in read_lines(self._path)))

    @cached_property
    def sha256(self) -> str:
        """Of the file."""
        return file_sha256(self._path)

    def of(self, lines: list[str], first: int) -> list[str | None]:
        """The drafts of these lines, `first` the number of those before them; None or an empty one: there is none."""
        if self._memory is not None:
            return [self._memory.draft(line) for line in lines]
        # Lines that an earlier run has done are passed over.
        drafts: list[str | None] = list(islice(self._lines, first - self._given, first - self._given + len(lines)))
        self._given = first + len(lines)
        if len(drafts) < len(lines):
            raise InputError(f"{self._name}: expected a draft for each line of {self._input}, found too few of them.")
        return drafts

    def check_end(self, lines: int) -> None:
        """Refuse drafts of more lines than there were; where an earlier run has done them all, none was given."""
        if self._memory is None:
            self._check(lines, self._given + sum(1 for _ in self._lines))

    def _check(self, wanted: int, found: int) -> None:
        if wanted != found:
            raise InputError(
                f"{self._name}: expected a draft for each of the {wanted} lines of {self._input}, found {found}."
            )
