"""Records: one JSON object per line, append-only, each with all that is needed to read it alone.

    latency        one candidate, workload, batch size and run: every reading, quality, counts, memory
    quality        one decoder on one test set: scores and counts without a clock
    training       one training run: how fast, how long, what came out
    distillation   one distilled corpus: how many sentences, how fast, the hash of its manifest
    exactness      one verifying decoder on one test set: is its output greedy's, and if not, where and how nearly
    contrastive    one model on one set of contrastive pairs: how often the right translation is the more probable one
    curves         what a figure shows that is no score: recall by K, ranks before a search, times by length
    profile        one decoder on one test set: where its time goes, stage by stage, and what it takes of memory

Each kind is a dataclass; a line is its fields plus `schema` and `kind`. Tables and plots are made from records alone.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from longstride.bench.profile_record import Profile
from longstride.bench.record_parts import (
    Against,
    Agreement,
    Counts,
    Curve,
    Equality,
    MemoryUse,
    Mismatch,
    ModelTag,
    Origin,
    PlaceProbe,
    Preparation,
    Stage,
    WorkloadTag,
)
from longstride.contract import InputError, Limits, LongstrideError, OptionError, WorkError
from longstride.contract.options import as_dict, parse
from longstride.tasks.contrastive import Cell
from longstride.tasks.likelihood import MutualInformation
from longstride.tasks.score import LengthBin, Score
from longstride.text.files import check_writable, output_file, parse_json, regular_target

__all__ = [
    "KINDS",
    "SCHEMA",
    "Against",
    "Agreement",
    "Contrastive",
    "Counts",
    "Curve",
    "Curves",
    "Distillation",
    "Equality",
    "Exactness",
    "Latency",
    "MemoryUse",
    "Mismatch",
    "ModelTag",
    "Origin",
    "PlaceProbe",
    "Preparation",
    "Profile",
    "Quality",
    "Record",
    "Role",
    "Stage",
    "Training",
    "WorkloadTag",
    "append_records",
    "check_records",
    "from_line",
    "read_records",
    "to_line",
    "write_whole",
]

SCHEMA = 1

Role = Literal["baseline", "candidate"]


@dataclass(frozen=True)
class Latency:
    """One candidate on one workload at one batch size in one run."""

    kind: ClassVar[str] = "latency"

    origin: Origin
    candidate: str
    role: Role
    order: int
    """place among the candidates of the run; tables keep it"""
    decoder: str
    """the decoder's signature"""
    device: str
    precision: str
    runtime: str
    model: ModelTag
    limits: Limits
    workload: WorkloadTag
    batch_size: int
    latencies_us: tuple[tuple[int, ...], ...]
    """[passes, batches] microseconds; at batch size 1 a batch is a sentence, in order"""
    source_lengths: tuple[int, ...]
    """per measured sentence, EOS counted"""
    output_lengths: tuple[int, ...]
    """per measured sentence, EOS not counted"""
    scores: tuple[Score, ...]
    sentences: tuple[int, ...] | None = None
    """places of the measured sentences in the workload where only a sample was measured; none: all"""
    batches: tuple[int, ...] = ()
    """sentences per batch, in the order measured (sorted by length) where the batch size is above 1"""
    iterations: tuple[int, ...] = ()
    """per measured sentence; empty where the decoder gives no trace"""
    counts: Counts | None = None
    memory: MemoryUse = field(default_factory=MemoryUse)
    equality: Equality | None = None
    against: tuple[Against, ...] = ()
    unstable: int = 0
    """sentences whose ids differed between passes"""
    warmup: int = 0
    """sentences decoded before the clock ran"""
    preparation: Preparation | None = None
    """what that took; none: the record is older than this figure"""
    options: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    paper: str = ""
    """what the paper reports for this, in a few words"""

    def __post_init__(self) -> None:
        measured = len(self.source_lengths)
        if len(self.output_lengths) != measured:
            raise OptionError(f"'output_lengths' expects {measured} numbers, found {len(self.output_lengths)}.")
        groups = len(self.batches) or measured
        if self.batches and sum(self.batches) != measured:
            raise OptionError(f"'batches' expects to add up to {measured} sentences, found {sum(self.batches)}.")
        if self.sentences is not None and len(self.sentences) != measured:
            raise OptionError(f"'sentences' expects {measured} numbers, found {len(self.sentences)}.")
        for readings in self.latencies_us:
            if len(readings) != groups:
                raise OptionError(f"'latencies_us' expects {groups} readings in every pass, found {len(readings)}.")
        if not self.latencies_us:
            raise OptionError("'latencies_us' expects at least one pass, found none.")

    @property
    def places(self) -> tuple[int, ...]:
        """The measured sentences as places in the workload."""
        return tuple(range(self.workload.size)) if self.sentences is None else self.sentences


@dataclass(frozen=True)
class Quality:
    """One decoder's output on one test set, scored; no clock ran."""

    kind: ClassVar[str] = "quality"

    origin: Origin
    candidate: str
    decoder: str
    model: ModelTag
    workload: WorkloadTag
    scores: tuple[Score, ...]
    role: Role = "candidate"
    order: int = 0
    limits: Limits = field(default_factory=Limits)
    precision: str = ""
    runtime: str = ""
    sentences: tuple[int, ...] | None = None
    counts: Counts | None = None
    equality: Equality | None = None
    against: tuple[Against, ...] = ()
    by_length: tuple[LengthBin, ...] = ()
    """from short to long sources, where asked for"""
    mutual_information: MutualInformation | None = None
    """between words that the model predicts independently, where asked for"""
    options: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    paper: str = ""


@dataclass(frozen=True)
class Training:
    """One training run, from its metrics file."""

    kind: ClassVar[str] = "training"

    origin: Origin
    name: str
    recipe: str
    parameters: int
    """weights in the model"""
    steps: int
    minutes: float
    """wall-clock, compilation included"""
    tokens_per_second: float
    """target tokens, after compilation"""
    scores: tuple[Score, ...] = ()
    """of the finished model on the validation set"""
    data: str = ""
    """what it was trained on, in a few words"""
    epochs: float | None = None
    model_hash: str = ""
    notes: dict[str, Any] = field(default_factory=dict)
    paper: str = ""


@dataclass(frozen=True)
class Distillation:
    """One distilled corpus."""

    kind: ClassVar[str] = "distillation"

    origin: Origin
    name: str
    teacher: str
    decoder: str
    sentences: int
    minutes: float
    manifest_hash: str
    dropped: int = 0
    """degenerate outputs left out"""
    tokens: int | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    decoded: int | None = None
    """sentences that this run decoded itself, where it went on with an earlier one's shards"""

    @property
    def sentences_per_second(self) -> float:
        """Of what this run decoded, over its whole wall-clock time."""
        mine = self.sentences if self.decoded is None else self.decoded
        return mine / (60 * self.minutes) if self.minutes else 0.0


@dataclass(frozen=True)
class Exactness:
    """One verifying decoder's output on one test set beside greedy's."""

    kind: ClassVar[str] = "exactness"

    origin: Origin
    candidate: str
    decoder: str
    """the decoder's signature"""
    model: ModelTag
    workload: WorkloadTag
    batch_size: int
    """rows of the table, for all that are compared"""
    same_shape: Agreement
    """with greedy carried out by the decoder's own steps: the guarantee is that nothing differs"""
    width_one: Agreement
    """with greedy by steps of one slot: other shapes round otherwise, and a near-tie may fall the other way"""
    device: str = ""
    precision: str = ""
    runtime: str = ""
    limits: Limits = field(default_factory=Limits)
    place: PlaceProbe | None = None
    options: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Contrastive:
    """One model's preferences on a set of contrastive pairs."""

    kind: ClassVar[str] = "contrastive"

    origin: Origin
    candidate: str
    model: ModelTag
    workload: WorkloadTag
    """the file of pairs; its size is their number"""
    signature: str
    """how pairs were decided"""
    cells: tuple[Cell, ...]
    """by type of error and distance; every other figure is a sum over some of these"""
    precision: str = ""
    runtime: str = ""
    notes: dict[str, Any] = field(default_factory=dict)
    paper: str = ""


@dataclass(frozen=True)
class Curves:
    """Lines over one axis, of one model on one test set."""

    kind: ClassVar[str] = "curves"

    origin: Origin
    name: str
    """what they show: ``recall``, ``ranks``, ``stages``"""
    model: ModelTag
    workload: WorkloadTag
    axis: str
    """what the places are, in words"""
    places: tuple[float, ...]
    curves: tuple[Curve, ...]
    decoder: str = ""
    """its signature, where one was at work"""
    notes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for one in self.curves:
            if len(one.values) != len(self.places):
                raise OptionError(f"'curves' expects {len(self.places)} values of {one.name}, found {len(one.values)}.")


Record = Latency | Quality | Training | Distillation | Exactness | Contrastive | Curves | Profile

KINDS: dict[str, type[Record]] = {
    kind.kind: kind for kind in (Latency, Quality, Training, Distillation, Exactness, Contrastive, Curves, Profile)
}


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
        raise InputError(f"{where}: expected a JSON object, found {error.msg} at column {error.colno}.") from None
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
    """Refuse files that records could not be appended to, before the work: not writable, or holding something else."""
    check_writable(*paths)
    for path in paths:
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
