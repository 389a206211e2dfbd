"""Files of records: a line of JSON each, appended whole or not at all, checked when they are read."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from longstride.bench.records import KINDS, Record
from longstride.contract import InputError, LongstrideError, OptionError, WorkError
from longstride.contract.options import as_dict, parse
from longstride.text.files import check_writable, opens_at_once, output_file, parse_json, regular_target

SCHEMA = 1


def to_line(record: Record) -> str:
    """A record as one line of JSON, without a line end; bytes in names that are no UTF-8 become question marks."""
    values = {"schema": SCHEMA, "kind": record.kind, **as_dict(record)}
    line = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return line.encode("utf-8", "replace").decode()


def from_line(line: str, where: str = "record") -> Record:
    """Parse and check one line; `where` says in errors which."""
    try:
        values = parse_json(line)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{where}: expected a JSON object, found something else ({error.msg} at column {error.colno})."
        ) from None
    except ValueError as error:
        raise InputError(f"{where}: expected a JSON object, found {error}.") from None
    if not isinstance(values, dict):
        raise InputError(f"{where}: expected a JSON object, found {type(values).__name__}.")
    schema, kind = values.pop("schema", None), values.pop("kind", None)
    if schema != SCHEMA:
        raise InputError(f"{where}: expected records of schema {SCHEMA}, found schema {schema!r}.")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"{where}: expected a record of kind {', '.join(KINDS)}, found kind {kind!r}.")
    try:
        return parse(KINDS[kind], values, where)
    except OptionError as error:
        raise InputError(str(error)) from None


def read_records(paths: Iterable[str | Path]) -> list[Record]:
    """All records of these files, in order; empty lines are passed over, any other line must be a record."""
    records = []
    for path in paths:
        try:
            mode = os.stat(path).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):  # a device may have no end
                raise InputError(f"{path}: expected a file of records, found none.")
            text = Path(path).read_text(encoding="utf-8-sig")
        except OSError as error:
            raise InputError(f"{path}: expected a file of records, found: {error.strerror}.") from None
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: expected UTF-8, found an invalid byte at offset {error.start}.") from None
        # Not splitlines: JSON strings may hold U+2028 and its like, which end no line here.
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                records.append(from_line(line, f"{path}, line {number}"))
    return records


def check_records(*paths: str | Path | None) -> None:
    """Refuse files that records could not be appended to, before the work: not writable, or holding something else; and
    pipes, which may wait forever after it."""
    check_writable(*paths)
    for path in paths:
        if path is not None and not opens_at_once(path):
            raise OptionError(f"{path}: expected a file to append records to, found a pipe or the like.")
        there = regular_target(path) if path is not None else None
        if there is not None and there.exists():
            read_records([path or there])


def append_records(path: str | Path, records: Sequence[Record]) -> None:
    """Add records to a file, all or none: it is written anew beside itself and renamed. Writers wait for each other.

    Where that fails, the records, which may have taken hours, are kept in the folder for temporary files.
    """
    lines = "".join(to_line(record) + "\n" for record in records).encode()
    try:
        _append(path, lines)
    except (OSError, LongstrideError) as error:
        told = str(error) if isinstance(error, LongstrideError) else f"{path}: could not be written ({error.strerror})."
        raise WorkError(f"{told.removesuffix('.')}; {_kept_elsewhere(lines)}.") from error


@contextmanager
def appended(path: Path | None, records: Sequence[Record]) -> Iterator[None]:
    """Around what tells of records: they are appended first, since who reads it may have left. It is told though they
    could not be written, and that they could not comes after it."""
    try:
        if path is not None:
            append_records(path, records)
    finally:
        yield


def _append(path: str | Path, lines: bytes) -> None:
    there = regular_target(path)
    if there is None:
        write_whole(Path(path), lines)
        return
    there.parent.mkdir(parents=True, exist_ok=True)
    with _alone_in(there.parent):
        before = there.read_bytes() if there.exists() else b""
        if before and not before.endswith(b"\n"):
            raise InputError(f"{path}: expected the file to end with a whole line, found its last line cut off.")
        write_whole(Path(path), before + lines)


def _kept_elsewhere(lines: bytes) -> str:
    """Write records where there may still be room; says where they are."""
    try:
        with tempfile.NamedTemporaryFile(prefix="longstride-records-", suffix=".jsonl", delete=False) as file:
            file.write(lines)
    except OSError as error:
        return f"the records could not be kept in {tempfile.gettempdir()} either ({error.strerror})"
    return f"the records are kept in {file.name}"


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold a folder against other writers, who may be other processes, for the length of a block."""
    try:
        import fcntl
    except ImportError:  # no such thing on Windows, where writers have to take turns by themselves
        yield
        return
    # The folder itself is locked: a lock file would be left behind, and the file of records is renamed over.
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with output_file(path) as file:
        file.write(content)
