"""Distil a corpus: shard by shard, resumable, then joined into two files with a manifest. Knows no model and no task.

<out>/shards/shard-00012.txt    one output per source line of that shard, degenerate ones included
<out>/shards/shard-00012.json   what it was made from, and which lines are degenerate; its presence makes it count
<out>/train.src, train.tgt      the pairs that were kept
<out>/manifest.json             written last
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from longstride.contract import InputError, UsageError
from longstride.distillation.decoding import Teacher, decode_shard
from longstride.distillation.options import DistillOptions
from longstride.distillation.shards import Shard, check_folder, origin_of, planned, write_json
from longstride.text.corpus import read_lines, write_lines
from longstride.text.files import file_sha256
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
) -> Outcome:
    """Decode lines into the folder `out`, going on with what is there if `resume`; `name` is for the manifest.

    An interruption loses the shard at work and nothing else; going on gives the same bytes as never having stopped.
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

    todo = [shard for shard in chosen if shard.record(origin) is None]
    done, of = 0, sum(shard.last - shard.first for shard in todo)

    def advanced(lines: int) -> None:
        nonlocal done
        done += lines
        if progress is not None and lines:
            progress(Progress(done, of, shard.index, len(shards)))

    for shard in todo:
        started = time.perf_counter()
        seed = options.seed * 1_000_003 + shard.index
        made = decode_shard(teacher, lines[shard.first : shard.last], options, seed, advanced)
        shard.write(made, origin, options.ending, time.perf_counter() - started)

    records = [shard.record(origin) for shard in shards]
    complete = [(shard, record) for shard, record in zip(shards, records, strict=True) if record is not None]
    manifest = None
    if len(complete) == len(shards):
        manifest = _join(Path(out), lines, complete, origin, options, name)
    return Outcome(len(todo), len(complete), len(shards), manifest)


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
    manifest = {
        "longstride": __version__,
        "source": name,
        **origin,
        "shards": len(shards),
        "kept": count,
        "dropped": len(lines) - count,
        "degenerate": dict(sorted(reasons.items())),
        "tokens": sum(record["tokens"] for _, record in shards),
        "minutes": round(seconds / 60, 3),
        "sentences_per_second": round(len(lines) / max(seconds, 1e-9), 1),
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
