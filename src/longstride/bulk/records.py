"""Files of records that can be cut into shards: lines of text, JSON lines, Parquet. Knows no model.

A shard is a run of records, read from the input where it lies: by bytes where lines are, by rows in Parquet. What is
written for it is a file of the same kind, and such files in order are the output.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from longstride.contract import InputError, OptionError
from longstride.text.corpus import WHATEVER, Portion, decode_lines, lines_file
from longstride.text.files import file_sha256, output_file, parse_json, written_whole

COMPRESSED = (".gz", ".xz")


@dataclass(frozen=True)
class Shard:
    """A run of records."""

    number: int
    first: int
    """record, counted from 0"""
    records: int
    start: int = 0
    """byte of the file, where it has lines"""
    end: int = 0


class Records(Protocol):
    """A kind of file."""

    ending: str
    """of the files that shards are written to"""

    def shards(self, path: Path, size: int, portion: Portion = WHATEVER) -> tuple[list[Shard], str]:
        """Return the shards of a file, each a portion or `size` records, and the SHA-256 of its bytes; check every
        record."""

    def read(self, path: Path, shard: Shard) -> tuple[list[str], Any]:
        """The texts of a shard, and what else of it is to be written."""

    def write(self, path: Path, texts: Sequence[str], rest: Any) -> None:
        """A shard's file, whole or not at all."""

    def count(self, path: Path) -> int:
        """Records in a shard's file."""

    def join(self, parts: Sequence[Path], output: Path) -> None:
        """The files of all shards as one."""


class TextLines:
    """A text is a line."""

    ending = ".txt"

    def shards(self, path: Path, size: int, portion: Portion = WHATEVER) -> tuple[list[Shard], str]:
        """Lines are cut at "\\n"; all must be UTF-8."""
        found: list[Shard] = []
        digest = hashlib.sha256()
        start = end = first = number = characters = 0
        with _opened(path) as file:
            for number, line in enumerate(decode_lines(file, str(path)), start=1):
                self.check(path, number, line)
                characters += len(line)
                if number - first == size or portion.full(number - first, characters):
                    end = file.tell()
                    found.append(Shard(len(found), first, number - first, start, end))
                    start, first, characters = end, number, 0
            if number > first:
                found.append(Shard(len(found), first, number - first, start, file.tell()))
            file.seek(0)
            while block := file.read(1 << 20):
                digest.update(block)
        return found, digest.hexdigest()

    def check(self, path: Path, number: int, line: str) -> None:
        """Refuse a line, counted from 1, that is no record."""

    def lines(self, path: Path, shard: Shard) -> list[str]:
        """As they stand in the file."""
        with _opened(path) as file:
            file.seek(shard.start)
            raw = file.read(shard.end - shard.start)
        text = raw.decode("utf-8")  # was looked at before
        text = text.removeprefix("\ufeff") if shard.start == 0 else text
        return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]

    def read(self, path: Path, shard: Shard) -> tuple[list[str], Any]:
        """Lines alone."""
        return self.lines(path, shard), None

    def write(self, path: Path, texts: Sequence[str], rest: Any) -> None:
        """One line each."""
        with output_file(path) as file:
            file.write("".join(f"{text}\n" for text in texts).encode("utf-8"))

    def count(self, path: Path) -> int:
        """Ends of lines."""
        with path.open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))

    def join(self, parts: Sequence[Path], output: Path) -> None:
        """Compressed where the name says so."""
        with lines_file(output) as file:
            for part in parts:
                with part.open("rb") as one:
                    shutil.copyfileobj(one, file)


@dataclass(frozen=True)
class JsonLines(TextLines):
    """A line is an object: the text of one field is translated, and stands in another one at its end; nothing (null)
    stays nothing."""

    field: str
    into: str
    ending = ".jsonl"

    def check(self, path: Path, number: int, line: str) -> None:
        """An object with a text, and without what is to be added."""
        try:
            record = parse_json(line)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: expected a JSON object ({error}).") from None
        if not isinstance(record, dict) or not isinstance(record.get(self.field, 0), str | None):
            raise InputError(f"{path}, line {number}: expected a JSON object with a text in {self.field!r}.")
        if self.into in record:
            raise InputError(f"{path}, line {number}: expected no {self.into!r} yet; --into names another field.")

    def read(self, path: Path, shard: Shard) -> tuple[list[str], Any]:
        """The field of each, and the lines as they stand."""
        lines = self.lines(path, shard)
        return [json.loads(line)[self.field] or "" for line in lines], lines

    def write(self, path: Path, texts: Sequence[str], rest: Any) -> None:
        """Numbers and the order of fields stay as they were spelt, since nothing but the new field is written anew."""
        name = json.dumps(self.into, ensure_ascii=False)
        nothing = [json.loads(line)[self.field] is None for line in rest]
        held = [None if none else text for none, text in zip(nothing, texts, strict=True)]
        added = [
            f"{line.rstrip()[:-1].rstrip()}, {name}: {json.dumps(text, ensure_ascii=False)}}}"
            for line, text in zip(rest, held, strict=True)
        ]
        super().write(path, added, None)


@dataclass(frozen=True)
class ParquetRows:
    """A row is a record: the text of one column is translated into another one, nothing stays nothing."""

    field: str
    into: str
    ending = ".parquet"

    def shards(self, path: Path, size: int, portion: Portion = WHATEVER) -> tuple[list[Shard], str]:
        """By rows, whatever the row groups are; a row is taken for as long as all are on average."""
        types = _pyarrow().types
        file = self._file(path)
        schema, rows = file.schema_arrow, file.metadata.num_rows
        if self.field not in schema.names:
            raise InputError(f"{path}: expected a column {self.field!r}, found {', '.join(schema.names)}.")
        kind = schema.field(self.field).type
        if not (types.is_string(kind) or types.is_large_string(kind)):
            raise InputError(f"{path}: expected text in the column {self.field!r}, found {kind}.")
        if self.into in schema.names:
            raise InputError(f"{path}: expected no column {self.into!r} yet; --into names another one.")
        groups = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
        columns = [group.column(place) for group in groups for place in range(group.num_columns)]
        text = sum(one.total_uncompressed_size for one in columns if one.path_in_schema == self.field)
        size = portion.records(size, text / max(1, rows))
        starts = range(0, max(1, rows), size)  # a file without rows has columns all the same
        found = [Shard(number, first, min(size, rows - first)) for number, first in enumerate(starts)]
        return found, file_sha256(path)

    def read(self, path: Path, shard: Shard) -> tuple[list[str], Any]:
        """The rows as a table; only the row groups are read that hold some of them."""
        file, end = self._file(path), shard.first + shard.records
        groups, begin, before = [], 0, None
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if begin < end and begin + rows > shard.first:
                groups.append(group)
                before = begin if before is None else before
            begin += rows
        table = file.read_row_groups(groups).slice(shard.first - (before or 0), shard.records)
        return [text or "" for text in table.column(self.field).to_pylist()], table

    def write(self, path: Path, texts: Sequence[str], rest: Any) -> None:
        """With one more column."""
        found = rest.column(self.field)
        held = [text if there else None for text, there in zip(texts, found.is_valid().to_pylist(), strict=True)]
        table = rest.append_column(self.into, _pyarrow().array(held, type=found.type))
        with written_whole(path) as file:
            _parquet().write_table(table, file)

    def count(self, path: Path) -> int:
        """As its end says."""
        return int(self._file(path).metadata.num_rows)

    def join(self, parts: Sequence[Path], output: Path) -> None:
        """A row group for each, or several where they are large."""
        parquet = _parquet()
        schema = parquet.read_schema(parts[0])
        with written_whole(output) as file, parquet.ParquetWriter(file, schema) as writer:
            for part in parts:
                writer.write_table(self._file(part).read())

    def _file(self, path: Path) -> Any:
        _opened(path).close()
        try:
            return _parquet().ParquetFile(path)
        except (OSError, _pyarrow().ArrowException) as error:
            told = " ".join(str(error).split())
            raise InputError(f"{path}: expected a Parquet file ({told}).") from error


def records_of(path: Path, output: Path, kind: str, field: str, into: str) -> Records:
    """The kind of a file: as told, or (`auto`) as its name ends."""
    endings = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
    found = endings.get(path.suffix, "text") if kind == "auto" else kind
    if path.suffix in COMPRESSED:
        raise OptionError(f"{path}: expected a file that is not compressed, of which shards can be read; unpack it.")
    if found == "text":
        return TextLines()
    if field == into:
        raise OptionError(f"--into expects another field than --field, found {into!r} in both.")
    if found == "jsonl":
        return JsonLines(field, into)
    if found == "parquet":
        if output.suffix in COMPRESSED:
            raise OptionError(f"{output}: expected a name that ends in .parquet, found {output.suffix}.")
        return ParquetRows(field, into)
    raise OptionError(f"--format expects auto, text, jsonl or parquet, found {kind!r}.")


def _opened(path: Path) -> IO[bytes]:
    if not path.is_file():
        raise InputError(f"{path}: expected a file of records, found {'something else' if path.exists() else 'none'}.")
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: could not be read ({error.strerror or error}).") from error


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise OptionError(
            "Parquet expects the package pyarrow, which is not installed here: pip install 'longstride[cluster]'."
        ) from None
    return pyarrow


def _parquet() -> Any:
    _pyarrow()
    from pyarrow import parquet

    return parquet
