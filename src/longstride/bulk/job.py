"""A job: a file cut into shards, the folder beside the output in which they come together, and one shard's work.

    OUT.shards/job.json       what the shards are made by and from
    OUT.shards/000012.txt     a shard that is done
    OUT.shards/000013.begun   one that somebody is at, or has died of: a line (machine, process) each time it was begun

Whoever does a shard reads it from the input and writes its file, whole or not at all: nothing else passes between
machines but numbers. So a job that was interrupted goes on with the shards that have no file yet.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from longstride.bulk.records import Records, Shard
from longstride.contract import InputError, LongstrideError, OptionError, UsageError, WorkError
from longstride.text.corpus import WHATEVER, Portion
from longstride.text.files import alone_in, output_file, read_json, regular_target
from longstride.translator import Translator

RECORD = "job.json"
DEATHS = 3
"""Times in a row that whoever does a shard may die of it: one that does not fit into memory would kill all in turn."""


@dataclass(frozen=True)
class Work:
    """What is done to every shard, and can be sent to whoever does it."""

    open: Callable[[], Translator]
    decoder: str | None
    options: Mapping[str, Any]
    batch: int | None = None
    """sentences side by side; None: what is fastest"""
    whole: bool | None = None
    """whether lines are read whole; None: as the model folder says"""


@dataclass(frozen=True)
class ShardResult:
    """What became of a shard."""

    shard: int
    records: int = 0
    error: str = ""
    """why it failed; nothing where it is done"""
    again: bool = False
    """whether trying it again may help"""
    warnings: list[str] = field(default_factory=list)
    worker: int = 0
    """the process that did it"""


@dataclass(frozen=True)
class Job:
    """One input, one output, and the shards between them."""

    input: Path
    output: Path
    records: Records
    shards: Sequence[Shard]
    sha256: str
    """of the input"""
    stamp: tuple[int, int]
    """of the input, size and time, by which whoever does a shard sees that it is still the same"""

    @staticmethod
    def of(source: Path, output: Path, records: Records, size: int, portion: Portion = WHATEVER) -> Job:
        """Cut a file into shards, each a portion or `size` records."""
        if regular_target(output) is None:
            raise OptionError(f"{output}: expected a regular file to write, found something else.")
        source, output = source.absolute(), output.absolute()  # up is up from where a link to a folder leads
        shards, sha256 = records.shards(source, size, portion)
        return Job(source, output, records, shards, sha256, _stamp(source))

    @property
    def folder(self) -> Path:
        """Where the shards come together."""
        return self.output.with_name(f"{self.output.name}.shards")

    def file(self, shard: Shard) -> Path:
        """Of a shard that is done."""
        return self.folder / f"{shard.number:06d}{self.records.ending}"

    @contextmanager
    def counted(self, shard: Shard) -> Iterator[None]:
        """While a shard is done; one that was begun too often, and never ended, is refused."""
        begun = self.file(shard).with_suffix(".begun")
        if begun.exists() and len(begun.read_bytes().splitlines()) >= DEATHS:
            begun.unlink(missing_ok=True)
            raise WorkError(f"whoever began it died, {DEATHS} times in a row; a smaller batch may fit into memory.")
        with begun.open("ab") as file:
            file.write(f"{platform.node()} {os.getpid()}\n".encode())
        try:
            yield
        finally:
            begun.unlink(missing_ok=True)

    @contextmanager
    def begun(self, made_by: Mapping[str, Any]) -> Iterator[None]:
        """Hold the folder; one that another job has left is refused."""
        plan: dict[str, Any] = {
            "made_by": dict(made_by),
            "input": self.sha256,
            "shards": [[shard.first, shard.records] for shard in self.shards],
        }
        plan = json.loads(json.dumps(plan))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WorkError(f"{self.folder}: could not be made ({error.strerror or error}).") from error
        with alone_in(self.folder):
            record = self.folder / RECORD
            if record.exists():
                self._check(record, plan)
            else:
                for shard in self.shards:  # of a run that was killed as it removed the folder: made by who knows what
                    self.file(shard).unlink(missing_ok=True)
                with output_file(record) as file:
                    file.write((json.dumps(plan) + "\n").encode())
            yield

    def _check(self, record: Path, plan: dict[str, Any]) -> None:
        try:
            found = read_json(record)
            before, made_by = found["made_by"], plan["made_by"]
            same = {name for name in (*before, *made_by) if before.get(name) == made_by.get(name)}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise InputError(
                f"{record}: expected what an interrupted run has left, found something else; remove {self.folder}."
            ) from None
        for name in made_by:
            if name not in same:
                raise OptionError(
                    f"{self.folder}: expected the same {name} as before, {before.get(name)!r}, found "
                    f"{made_by[name]!r}; to begin anew, remove that folder."
                )
        for name, words in (("input", "input"), ("shards", "--shard")):
            if found.get(name) != plan[name]:
                raise OptionError(
                    f"{self.folder}: expected the same {words} as before, found another; to begin anew, remove that "
                    "folder."
                )

    def left(self) -> list[Shard]:
        """Shards that have no file yet, or one of another length."""
        return [shard for shard in self.shards if not self._done(shard)]

    def _done(self, shard: Shard) -> bool:
        try:
            return self.file(shard).is_file() and self.records.count(self.file(shard)) == shard.records
        except InputError:
            return False

    def finish(self) -> None:
        """Write the output, and remove the folder."""
        for shard in self.shards:
            if not self._done(shard):
                raise WorkError(f"{self.file(shard)}: expected {shard.records} records; run the command again.")
        self.records.join([self.file(shard) for shard in self.shards], self.output)
        shutil.rmtree(self.folder)


@dataclass(frozen=True)
class Worker:
    """Does shards, with a model that is opened at the first one."""

    job: Job
    work: Work

    @cached_property
    def _translator(self) -> Translator:
        return self.work.open()

    def __call__(self, shard: Shard) -> ShardResult:
        """One shard; what goes wrong is told, for the others to go on."""
        warnings: list[str] = []
        try:
            with self.job.counted(shard):
                self._do(shard, warnings.append)
        except LongstrideError as error:
            return ShardResult(shard.number, 0, str(error), not isinstance(error, UsageError), worker=os.getpid())
        except Exception as error:  # memory, a disk, a device
            told = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return ShardResult(shard.number, 0, told, True, worker=os.getpid())
        return ShardResult(shard.number, shard.records, warnings=warnings, worker=os.getpid())

    def _do(self, shard: Shard, warn: Callable[[str], None]) -> None:
        job = self.job
        if _stamp(job.input) != job.stamp:
            raise InputError(f"{job.input}: expected the file as it was when the run began, found it changed.")
        texts, rest = job.records.read(job.input, shard)
        if len(texts) != shard.records:
            raise InputError(f"{job.input}: expected {shard.records} records from {shard.first + 1} on.")
        work = self.work
        done = self._translator.translate(
            texts,
            work.decoder,
            batch=work.batch,
            warn=warn,
            first_line=shard.first + 1,
            whole=work.whole,
            **work.options,
        )
        job.records.write(job.file(shard), [one.text for one in done], rest)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(f"{path}: could not be read ({error.strerror or error}).") from error
    return found.st_size, found.st_mtime_ns
