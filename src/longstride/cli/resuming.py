"""Output files that grow in sight and can be gone on with: what `translate --resume` keeps between its runs.

    OUT.partial        the lines that are done, in order
    TRACE.partial      the same of the trace, where one is written
    OUT.partial.json   what they were made by and from, how many lines of the input they stand for, and where they end

Files grow first, then the record is replaced: whatever lies behind the ends that it names was cut off by a kill, and is
cut off for good. When all is done, the record says so before the files get their names. Knows no model.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from longstride.contract import InputError, OptionError, WorkError
from longstride.text.corpus import lines_file
from longstride.text.files import lock_file, output_file, regular_target

ENDING = ".partial"


class Partial:
    """The files of one job, one or two, which grow together."""

    def __init__(self, files: Sequence[Path], made_by: Mapping[str, Any]) -> None:
        """Look at what is there, and refuse what another job has left; nothing is written yet."""
        for file in files:
            if regular_target(file) is None:
                raise OptionError(f"--resume expects regular files to write, found {file}.")
        self._finals = list(files)
        self._parts = [file.with_name(file.name + ENDING) for file in files]
        self._record = files[0].with_name(files[0].name + ENDING + ".json")
        self._made_by = json.loads(json.dumps(made_by))
        self._ends = [0] * len(files)
        self._digest = hashlib.sha256()
        self._open: list[IO[bytes]] = []
        self.lines = 0
        """of the input, that are done"""
        self.done = False
        """all of it is"""
        self._input = self._digest.hexdigest()
        if self._record.exists():
            self._take_up(_read(self._record))
        elif left := [part for part in self._parts if part.exists()]:
            raise InputError(f"{left[0]}: expected {self._record.name} beside it, found none; remove or rename it.")

    def _take_up(self, found: dict[str, Any]) -> None:
        for name, mine in self._made_by.items():
            if found["made_by"].get(name) != mine:
                raise OptionError(
                    f"{self._record}: --resume expects the same {name} as before, {found['made_by'].get(name)!r}, "
                    f"found {mine!r}; to begin anew, remove {self._record.name}."
                )
        self.lines, self._ends, self.done, self._input = (found[key] for key in ("lines", "ends", "done", "input"))
        for part, end in zip(self._parts, self._ends, strict=True):
            size = part.stat().st_size if part.exists() else 0
            if size < end and not self.done:
                raise InputError(f"{part}: expected at least {end} bytes, found {size}; remove {self._record.name}.")

    def check_input(self, lines: Iterable[str]) -> None:
        """Refuse an input that does not begin with the lines that are done."""
        for line in lines:
            self._count(line)
        if self._digest.hexdigest() != self._input:
            raise InputError(
                f"{self._record}: --resume expects an input that begins with the same {self.lines} lines as before, "
                f"found others; to begin anew, remove {self._record.name}."
            )

    def open(self) -> None:
        """Begin to write: from here on the files grow."""
        if not self._record.exists():
            for part in self._parts:
                part.parent.mkdir(parents=True, exist_ok=True)
            self._keep()
        for part, end in zip(self._parts, self._ends, strict=True):
            handle = os.open(part, os.O_RDWR | os.O_CREAT, 0o666)
            file = os.fdopen(handle, "r+b", buffering=0)  # nothing is left to be written when a write has failed
            self._open.append(file)
            if not lock_file(handle):
                raise WorkError(f"{part}: expected to be the only one to write it, found another process doing so.")
            file.truncate(end)
            file.seek(end)

    def add(self, sources: Iterable[str], *contents: bytes) -> None:
        """The next lines of the input are done; to each file, what it gets of them."""
        try:
            for file, content in zip(self._open, contents, strict=True):
                rest = memoryview(content)
                while rest:
                    rest = rest[file.write(rest) :]
        except OSError as error:
            raise WorkError(
                f"{self._parts[0]}: could not be written ({error.strerror}); --resume goes on from what is there."
            ) from error
        for line in sources:
            self._count(line)
            self.lines += 1
        self._ends = [file.tell() for file in self._open]
        self._input = self._digest.hexdigest()
        self._keep()

    def finish(self) -> None:
        """All is done: the files get their names."""
        self.close()
        if not self.done:
            self.done = True
            self._keep()
        for part, final, end in zip(self._parts, self._finals, self._ends, strict=True):
            if not part.exists():
                continue  # a run that was killed here had come past it
            os.truncate(part, end)
            place = regular_target(final) or final
            if final.suffix in (".gz", ".xz") or place.parent != part.parent.resolve():
                with part.open("rb") as plain, lines_file(final) as file:
                    shutil.copyfileobj(plain, file)
                part.unlink()
            else:
                part.replace(place)
        self._record.unlink()

    def close(self) -> None:
        """Leave the files as they are."""
        for file in self._open:
            file.close()
        self._open = []

    def _count(self, line: str) -> None:
        self._digest.update(line.encode() + b"\n")

    def _keep(self) -> None:
        record = {
            "made_by": self._made_by,
            "lines": self.lines,
            "ends": self._ends,
            "done": self.done,
            "input": self._input,
        }
        with output_file(self._record) as file:
            file.write((json.dumps(record, indent=2) + "\n").encode())


def _read(path: Path) -> dict[str, Any]:
    """The record of an earlier run."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        kinds = {"made_by": dict, "lines": int, "ends": list, "done": bool, "input": str}
        if all(isinstance(found[key], kind) for key, kind in kinds.items()):
            return dict(found)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise InputError(f"{path}: expected what --resume keeps of an earlier run, found something else.")
