"""Records: one JSON object per line, append-only, each with all that is needed to read it alone.

    latency        one candidate, workload, batch size and run: every reading, quality, counts, memory
    quality        one decoder on one test set: scores and counts without a clock
    exactness      one verifying decoder on one test set: is its output greedy's, and if not, where and how nearly
    profile        one decoder on one test set: where its time goes, stage by stage, and what it takes of memory
    contrastive    one model on one set of contrastive pairs: how often the right translation is the more probable one
    curves         what a figure shows that is no score: recall by K, ranks before a search, times by length
    training       one training run: how fast, how long, what came out
    distillation   one distilled corpus: how many sentences, how fast, the hash of its manifest

Each kind is a dataclass; a line is its fields plus `schema` and `kind` (:mod:`longstride.bench.record_files`). Tables
and plots are made from records alone.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

from longstride.bench.record_parts import (
    Against,
    Agreement,
    BatchKind,
    Counts,
    Curve,
    Equality,
    MemoryUse,
    ModelTag,
    Origin,
    Preparation,
    Role,
    Stage,
    WorkloadTag,
)
from longstride.contract import Limits, OptionError
from longstride.tasks.bootstrap import Interval
from longstride.tasks.contrastive import Cell
from longstride.tasks.likelihood import MutualInformation
from longstride.tasks.score import LengthBin, Score
from longstride.verification.exactness import BatchInvarianceReport


@dataclass(frozen=True)
class OfDecoder:
    """What all records of one decoder on one test set say."""

    origin: Origin
    candidate: str
    decoder: str
    """the decoder's signature"""
    model: ModelTag
    workload: WorkloadTag
    _: KW_ONLY
    role: Role = "candidate"
    order: int = 0
    """place among the candidates of the run; tables keep it"""
    device: str = ""
    precision: str = ""
    runtime: str = ""
    limits: Limits = field(default_factory=Limits)
    options: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    paper: str = ""
    """what the paper reports for this, in a few words"""


@dataclass(frozen=True)
class Latency(OfDecoder):
    """One candidate on one workload at one batch size in one run."""

    kind: ClassVar[str] = "latency"

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
    """sentences per batch, in the order measured (sorted by length) where the batch size is above 1 or it is open"""
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
    batch_kind: BatchKind = "closed"
    """open: `batches` are what a session decoded, `batch_size` sentences side by side at any time"""

    def __post_init__(self) -> None:
        measured = len(self.source_lengths)
        groups = len(self.batches) or measured
        if self.batches and sum(self.batches) != measured:
            raise OptionError(f"'batches' expects to add up to {measured} sentences, found {sum(self.batches)}.")
        if not self.latencies_us:
            raise OptionError("'latencies_us' expects at least one pass, found none.")
        expected = [("output_lengths", self.output_lengths, measured, "numbers")]
        expected += [("latencies_us", one, groups, "readings in every pass") for one in self.latencies_us]
        if self.sentences is not None:
            expected.append(("sentences", self.sentences, measured, "numbers"))
        for name, values, number, what in expected:
            if len(values) != number:
                raise OptionError(f"'{name}' expects {number} {what}, found {len(values)}.")

    @property
    def places(self) -> tuple[int, ...]:
        """The measured sentences as places in the workload."""
        return tuple(range(self.workload.size)) if self.sentences is None else self.sentences


@dataclass(frozen=True)
class Quality(OfDecoder):
    """One decoder's output on one test set, scored; no clock ran."""

    kind: ClassVar[str] = "quality"

    scores: tuple[Score, ...]
    sentences: tuple[int, ...] | None = None
    counts: Counts | None = None
    equality: Equality | None = None
    against: tuple[Against, ...] = ()
    by_length: tuple[LengthBin, ...] = ()
    """from short to long sources, where asked for"""
    mutual_information: MutualInformation | None = None
    """between words that the model predicts independently, where asked for"""
    intervals: tuple[Interval, ...] = ()
    """of the scores that systems are compared by, where asked for"""


@dataclass(frozen=True)
class Exactness(OfDecoder):
    """One verifying decoder's output on one test set beside greedy's."""

    kind: ClassVar[str] = "exactness"

    batch_size: int
    """rows of the table, for all that are compared"""
    same_shape: Agreement
    """with greedy carried out by the decoder's own steps: the guarantee is that nothing differs"""
    width_one: Agreement
    """with greedy by steps of one slot: other shapes round otherwise, and a near-tie may fall the other way"""
    place: BatchInvarianceReport | None = None
    """whether results depend on a row's place, its neighbours or a token's slot"""


@dataclass(frozen=True)
class Profile(OfDecoder):
    """Where one decoder's time goes on one test set at one batch size, and what it takes of memory.

    Stages are timed with the device synchronised before and after each: their shares mean something, their sum is more
    than a decode takes that runs through. What that takes, of the same sentences, is in `plain_us`.
    """

    kind: ClassVar[str] = "profile"

    batch_size: int
    sentences: int
    """how many were decoded, once watched and once not"""
    plain_us: tuple[int, ...]
    """per batch, microseconds of a pass that nobody watched"""
    watched_us: int
    """the whole watched pass"""
    stages: tuple[Stage, ...]
    """in the order of their first calls"""
    bandwidth: float | None = None
    """bytes per second that a large copy on the device read and wrote; the floor of a stage is its weights over this"""
    memory: MemoryUse = field(default_factory=MemoryUse)
    """of the pass that nobody watched, with this decoder alone loaded"""
    reserved: int | None = None
    """bytes of the device that PyTorch had taken at the highest, captured graphs and its reserve included"""

    def __post_init__(self) -> None:
        if self.sentences < 1 or not self.plain_us:
            raise OptionError(f"'sentences' expects 1 or more, decoded in as many batches, found {self.sentences}.")
        if self.rest_us < 0:
            raise OptionError(
                f"'stages' expects no more microseconds than the whole pass took, {self.watched_us}, found "
                f"{self.watched_us - self.rest_us}."
            )

    @property
    def rest_us(self) -> int:
        """What of the watched pass belongs to no stage: the host's work, and the device's between stages."""
        return self.watched_us - sum(stage.microseconds for stage in self.stages if not stage.within)

    def floor_us(self, stage: Stage) -> float | None:
        """The least microseconds that a call takes whose weights come from memory once; none where unknown."""
        return 1e6 * stage.weights / self.bandwidth if stage.weights and self.bandwidth else None


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


Record = Latency | Quality | Exactness | Profile | Contrastive | Curves | Training | Distillation

KINDS: dict[str, type[Record]] = {
    kind.kind: kind for kind in (Latency, Quality, Exactness, Profile, Contrastive, Curves, Training, Distillation)
}
