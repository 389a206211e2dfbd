"""Shards on disk: what each was made from, whether it is complete and belongs with the rest. Knows no decoder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longstride.contract import UsageError
from longstride.contract.options import as_dict
from longstride.distillation.decoding import DecodedShard, Teacher
from longstride.distillation.options import ENDINGS, DistillOptions
from longstride.text.corpus import read_lines, write_lines
from longstride.text.files import file_sha256, read_json, written_whole

FORMAT = 1
_FIELDS: dict[str, Any] = {"origin": dict, "file": str, "tokens": int, "seconds": int | float, "degenerate": dict}


def origin_of(teacher: Teacher, data: str, lines: int, options: DistillOptions) -> dict[str, Any]:
    """All that decides what a shard holds, as JSON has it; `data` is the hash of the source lines."""
    origin = {
        "format": FORMAT,
        "teacher": teacher.hashes,
        "vocabulary": teacher.vocabulary,
        "decoder": teacher.signature,
        "limits": as_dict(teacher.limits),
        "data": data,
        "lines": lines,
        "shard_lines": options.shard_lines,
        "longest_source": options.longest_source,
        "keep_all": options.keep_all,
        "seed": options.seed,
        "rules": as_dict(options.rules),
    }
    return json.loads(json.dumps(origin))  # type: ignore[no-any-return]  # lists for tuples


def _check_origin(origin: Mapping[str, Any], found: Mapping[str, Any], path: Path) -> None:
    """Refuse a shard of another origin, naming the first thing that differs."""
    for name, expected in origin.items():
        if found.get(name) != expected:
            raise UsageError(
                f"{path}: expected a shard with {name} {_shown(expected)}, found {_shown(found.get(name))}; "
                "shards of different origin are not mixed, choose another folder."
            )


@dataclass(frozen=True)
class Shard:
    """One shard of a folder, made or yet to be made."""

    folder: Path
    index: int
    first: int
    last: int

    @property
    def record_path(self) -> Path:
        """Where its record is, once it is complete."""
        return self.folder / f"shard-{self.index:05d}.json"

    def record(self, origin: Mapping[str, Any]) -> dict[str, Any] | None:
        """The record of a complete shard of this origin; None if it is yet to be made or its text was damaged."""
        try:
            found = read_json(self.record_path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.record_path}: expected the record of a shard, found something else.") from error
        if not isinstance(found, dict) or any(not isinstance(found.get(name), kind) for name, kind in _FIELDS.items()):
            raise UsageError(f"{self.record_path}: expected the record of a shard, found something else.")
        _check_origin(origin, found["origin"], self.record_path)
        text = self.folder / found["file"]
        if (
            text.name not in (f"{self.record_path.stem}.txt{ending}" for ending in ENDINGS)
            or text.parent != self.folder
        ):
            raise UsageError(
                f"{self.record_path}: expected the text of this shard as its file, found {found['file']!r}."
            )
        if not text.is_file() or file_sha256(text) != found.get("sha256"):
            return None
        return found

    def write(self, made: DecodedShard, origin: Mapping[str, Any], ending: str, seconds: float) -> dict[str, Any]:
        """Write the text, then the record that makes it count."""
        text = self.folder / f"shard-{self.index:05d}.txt{ending}"
        self.record_path.unlink(missing_ok=True)
        write_lines(text, made.lines)
        record = {
            "origin": origin,
            "shard": self.index,
            "first": self.first,
            "last": self.last,
            "file": text.name,
            "sha256": file_sha256(text),
            "tokens": made.tokens,
            "seconds": round(seconds, 3),
            # Lines of the whole corpus, counted from 1, as errors and editors count them.
            "degenerate": {str(self.first + row + 1): reason for row, reason in made.degenerate.items()},
        }
        write_json(self.record_path, record)
        return record

    def outputs(self, record: Mapping[str, Any]) -> Iterator[tuple[int, str, str | None]]:
        """Line of the corpus (from 0), output, and why it is degenerate if it is."""
        degenerate = record["degenerate"]
        expected = self.last - self.first
        count = 0
        for count, text in enumerate(read_lines(self.folder / record["file"]), start=1):
            line = self.first + count - 1
            yield line, text, degenerate.get(str(line + 1))
        if count != expected:
            raise UsageError(f"{self.folder / record['file']}: expected {expected} lines, found {count}.")


def planned(folder: Path, lines: int, shard_lines: int) -> list[Shard]:
    """The shards of a corpus, in corpus order."""
    starts = range(0, lines, shard_lines)
    return [Shard(folder, index, first, min(first + shard_lines, lines)) for index, first in enumerate(starts)]


def check_folder(folder: Path, shards: Sequence[Shard], origin: Mapping[str, Any]) -> None:
    """Refuse a folder with shards of another origin, or with more of them than this corpus has."""
    known = {shard.record_path: shard for shard in shards}
    for path in sorted(folder.glob("shard-*.json")):
        if path not in known:
            raise UsageError(f"{path}: expected {len(shards)} shards, found one more; choose another folder.")
        known[path].record(origin)


def write_json(path: Path, value: Any) -> None:
    """Write JSON that people can read, whole or not at all."""
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:117] + "..."
