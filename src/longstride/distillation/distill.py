"""Distil a corpus: shard by shard, resumable, then joined into two files with a manifest. Knows no model and no task.

<out>/shards/shard-00012.txt    one output per source line of that shard, degenerate ones included
<out>/shards/shard-00012.json   what it was made from, and which lines are degenerate; its presence makes it count
<out>/train.src, train.tgt      the pairs that were kept
<out>/manifest.json             written last
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from longstride.contract import InputError, Limits, UsageError
from longstride.contract.decoding import HARD_LIMITS
from longstride.contract.options import as_dict
from longstride.distillation.decoding import DecodedShard, Teacher, decode_shard
from longstride.distillation.options import ENDINGS, DistillOptions
from longstride.text.corpus import read_lines, write_lines
from longstride.text.files import file_sha256, read_json, write_json
from longstride.version import __version__


@dataclass(frozen=True)
class Progress:
    """How far the shards asked for are: lines done and to do in this run, and the shard at work."""

    lines: int
    of: int
    shard: int
    shards: int


@dataclass(frozen=True)
class Outcome:
    """What a run did; the manifest is there once every shard of the corpus is."""

    made: int
    """shards made by this run"""
    complete: int
    shards: int
    manifest: dict[str, Any] | None


Report = Callable[[Progress], None]


def distill(
    teacher: Teacher,
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: DistillOptions | None = None,
    *,
    resume: bool = False,
    progress: Report | None = None,
) -> Outcome:
    """Decode the lines of a file (plain, .gz or .xz) into the folder `out`; see :func:`distill_lines`."""
    return distill_lines(
        teacher, list(read_lines(source)), out, options, resume=resume, progress=progress, name=Path(source).name
    )


def distill_lines(
    teacher: Teacher,
    lines: Sequence[str],
    out: str | os.PathLike[str],
    options: DistillOptions | None = None,
    *,
    resume: bool = False,
    progress: Report | None = None,
    name: str = "lines",
    seconds: float = math.inf,
) -> Outcome:
    """Decode lines into the folder `out`, going on with what is there if `resume`; `name` is for the manifest.

    An interruption loses the shard at work and nothing else; going on gives the same bytes as never having stopped.
    Once all shards up to one took so many `seconds`, the corpus ends with that one.
    """
    options = options or DistillOptions()
    if teacher.longest_source is not None:
        options = replace(options, longest_source=min(options.longest_source, teacher.longest_source))
    if not lines:
        raise InputError(f"{name}: expected lines to distil, found none.")
    folder = Path(out) / "shards"
    if not resume and folder.is_dir() and any(folder.glob("shard-*")):
        raise UsageError(f"{out}: expected a new folder, found shards in it; resume to go on with them.")
    shards = planned(folder, len(lines), options.shard_lines)
    chosen = [shards[index] for index in options.shards.of(len(shards))]
    if not chosen:
        raise UsageError(f"shards expects some of the {len(shards)} shards there are, found {options.shards}.")
    origin = origin_of(teacher, _hash(lines), len(lines), options)
    check_folder(folder, shards, origin)

    made, taken, done = 0, 0.0, 0
    of = sum(shard.last - shard.first for shard in chosen if shard.record(origin) is None)

    def advanced(lines: int) -> None:
        nonlocal done
        done += lines
        if progress is not None and lines:
            progress(Progress(done, of, shard.index, len(shards)))

    for shard in chosen:
        if (record := shard.record(origin)) is None:
            started = time.perf_counter()
            seed = options.seed * 1_000_003 + shard.index
            decoded = decode_shard(teacher, lines[shard.first : shard.last], options, seed, advanced, shard.first)
            record = shard.write(decoded, origin, options.ending, time.perf_counter() - started)
            made += 1
        taken += record["seconds"]
        if taken >= seconds:
            shards = shards[: shard.index + 1]
            break
        if seconds < math.inf:  # at the pace so far
            of = min(of, math.ceil(done * seconds / max(taken, 1e-3)))

    records = [shard.record(origin) for shard in shards]
    complete = [(shard, record) for shard, record in zip(shards, records, strict=True) if record is not None]
    manifest = None
    if len(complete) == len(shards):
        manifest = _join(Path(out), lines, complete, origin, options, name)
    return Outcome(made, len(complete), len(shards), manifest)


def _join(
    out: Path,
    lines: Sequence[str],
    shards: Sequence[tuple[Shard, dict[str, Any]]],
    origin: dict[str, Any],
    options: DistillOptions,
    name: str,
) -> dict[str, Any]:
    """Write the pairs that are kept, and then the manifest."""
    path = out / "manifest.json"
    path.unlink(missing_ok=True)  # what it describes is about to be replaced

    def kept() -> Iterator[tuple[str, str]]:
        for shard, record in shards:
            for line, text, reason in shard.outputs(record):
                if reason is None or options.keep_all:
                    yield lines[line], text

    files = {}
    for side, ending in enumerate(("src", "tgt")):
        file = out / f"{options.name}.{ending}{options.ending}"
        count = write_lines(file, (pair[side] for pair in kept()))
        files[file.name] = {"lines": count, "sha256": file_sha256(file)}
    reasons = Counter(reason for _, record in shards for reason in record["degenerate"].values())
    seconds = sum(record["seconds"] for _, record in shards)
    decoded = sum(shard.last - shard.first for shard, _ in shards)
    manifest = {
        "longstride": __version__,
        "source": name,
        **origin,
        "shards": len(shards),
        "kept": count,
        "dropped": decoded - count,
        "degenerate": dict(sorted(reasons.items())),
        "tokens": sum(record["tokens"] for _, record in shards),
        "minutes": round(seconds / 60, 3),
        "sentences_per_second": round(decoded / max(seconds, 1e-9), 1),
        "files": files,
    }
    write_json(path, manifest)
    return manifest


def _hash(lines: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8"))
        digest.update(b"\n")
    return digest.hexdigest()


FORMAT = 1
_FIELDS: dict[str, Any] = {"origin": dict, "file": str, "tokens": int, "seconds": int | float, "degenerate": dict}


def origin_of(teacher: Teacher, data: str, lines: int, options: DistillOptions) -> dict[str, Any]:
    """All that decides what a shard holds, as JSON has it; `data` is the hash of the source lines."""
    origin = {
        "format": FORMAT,
        "teacher": teacher.hashes,
        "vocabulary": teacher.vocabulary,
        "decoder": teacher.signature,
        # Those that few decoders obey are named where they are set: shards are those of versions that knew none.
        "limits": {
            name: value
            for name, value in as_dict(teacher.limits).items()
            if name not in HARD_LIMITS or value != getattr(Limits, name)
        },
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


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:117] + "..."
