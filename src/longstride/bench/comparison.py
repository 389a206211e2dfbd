"""Which records belong together: a run's decoders on one test set at one batch size, side by side.

Ratios are taken within a run only, over the sentences that both sides decoded. Where an experiment was run again, the
later run stands for it. Records keep the names of candidates whole; tables and plots leave out what all of them share.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeVar

from longstride.bench.record_parts import BatchKind, Origin, WorkloadTag
from longstride.bench.records import Latency, Quality, Record
from longstride.bench.statistics import Ratio, per_item, ratio_of_means

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class BenchRun:
    """The latency records of one run on one workload at one batch size, in their order."""

    records: tuple[Latency, ...]
    shared_prefix: str = ""
    """What its models' names began with before it was left out."""

    @property
    def origin(self) -> Origin:
        """Where and when it was run."""
        return self.records[0].origin

    @property
    def workload(self) -> WorkloadTag:
        """What was decoded."""
        return self.records[0].workload

    @property
    def batch_size(self) -> int:
        """How many sentences were decoded together."""
        return self.records[0].batch_size

    @property
    def batch_kind(self) -> BatchKind:
        """Whether others took the places of sentences that were done."""
        return self.records[0].batch_kind

    @property
    def name(self) -> str:
        """A name for files and markers: letters, digits and hyphens."""
        parts = [self.origin.experiment, self.workload.name, self.origin.machine.device, f"batch {self.batch_size}"]
        return slug(" ".join([*parts, *(["open"] if self.batch_kind == "open" else [])]))

    @property
    def where(self) -> str:
        """What was decoded how, and on what."""
        kind = ", open" if self.batch_kind == "open" else ""
        return f"{self.workload.name}, batch size {self.batch_size}{kind}, {self.origin.machine.device}"

    @property
    def baselines(self) -> tuple[Latency, ...]:
        """What speed-ups are over; the first is the one that plots use."""
        return tuple(record for record in self.records if record.role == "baseline")

    def shortened(self) -> BenchRun:
        """The same with names as short as they can be; the same again where they are short already."""
        ours = [record for record in self.records if names_model(record)]
        start = shared_start(record.model.name for record in ours)
        short = {record.candidate: record.candidate.removeprefix(start) for record in ours}
        names = {record.candidate: short.get(record.candidate, record.candidate) for record in self.records}
        if not start or len(set(names.values())) < len(names):
            return self
        return BenchRun(tuple(_renamed(record, names, start) for record in self.records), start)


def grouped(
    records: Iterable[Record], kind: type[R], by: Sequence[str], apart: Sequence[str], order: Sequence[str] = ()
) -> dict[tuple[Any, ...], list[R]]:
    """Records of a kind by the fields `by`; of those that agree in `apart` too the latest, sorted by `order`.

    Fields are paths of attributes; groups come sorted.
    """
    group, one_of, place = _values(by), _values(apart), _values(order)
    kept: dict[tuple[Any, ...], dict[tuple[Any, ...], R]] = {}
    for record in sorted((one for one in records if isinstance(one, kind)), key=lambda one: one.origin.date):
        kept.setdefault(group(record), {})[one_of(record)] = record
    return {key: sorted(some.values(), key=place) for key, some in sorted(kept.items())}


def _values(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda record: tuple(attrgetter(name)(record) for name in names)


EXPERIMENT, TEST_SET, DEVICE = "origin.experiment", "workload.name", "origin.machine.device"


def bench_runs(records: Iterable[Record]) -> list[BenchRun]:
    """All runs, of each experiment the latest, sorted by experiment, device, workload, kind of batches and size."""
    by = (EXPERIMENT, DEVICE, TEST_SET, "batch_kind", "batch_size")
    found = []
    for some in grouped(records, Latency, by, ("origin.date", "origin.run", "order"), ("order",)).values():
        last = max((one.origin.date, one.origin.run) for one in some)
        found.append(BenchRun(tuple(one for one in some if (one.origin.date, one.origin.run) == last)))
    return found


def speed_up(record: Latency, baseline: Latency) -> Ratio | None:
    """How many times faster than the baseline, over what both decoded; none where they have nothing in common."""
    pairs = paired_times(record, baseline)
    if not pairs:
        return None
    return ratio_of_means([theirs for theirs, _ in pairs], [ours for _, ours in pairs])


def paired_times(record: Latency, baseline: Latency) -> list[tuple[float, float]]:
    """Per sentence (or per batch, where both have the same) the baseline's and the record's mean time."""
    ours, theirs = per_item(record.latencies_us), per_item(baseline.latencies_us)
    if record.batches or baseline.batches:
        same = record.batches == baseline.batches and record.places == baseline.places
        return list(zip(theirs, ours, strict=True)) if same else []
    by_place = dict(zip(baseline.places, theirs, strict=True))
    return [(by_place[place], time) for place, time in zip(record.places, ours, strict=True) if place in by_place]


def quality_groups(records: Iterable[Record]) -> list[list[Quality]]:
    """Quality records by experiment and workload; of each candidate, model and precision the latest, in their order."""
    apart = ("candidate", "model.name", "precision")
    return list(grouped(records, Quality, (EXPERIMENT, TEST_SET), apart, ("order", *apart)).values())


def groups_of_one_precision(records: Iterable[Record]) -> list[list[Quality]]:
    """The same for tables that have one place for each setting: every precision is an experiment of its own.

    Where there are several, the one with the most records keeps the experiment's name, the others add their own to it.
    """
    found = []
    for group in quality_groups(records):
        counts = Counter(record.precision for record in group)
        first = max(counts, key=lambda name: counts[name])
        for precision in sorted(counts, key=lambda name: (name != first, name)):
            mine = [record for record in group if record.precision == precision]
            if precision != first:
                name = f"{mine[0].origin.experiment}, {precision or 'precision unknown'}"
                mine = [replace(record, origin=replace(record.origin, experiment=name)) for record in mine]
            found.append(mine)
    return found


def slug(text: str) -> str:
    """Lower-case letters, digits and single hyphens."""
    kept = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in text.lower())
    return "-".join(part for part in kept.split("-") if part)


def names_model(record: Latency) -> bool:
    """Whether the candidate's name begins with its model's: ``en-de-verifier greedy``."""
    return record.candidate.startswith(f"{record.model.name} ")


def shared_start(names: Iterable[str]) -> str:
    """What all of these begin with, up to a hyphen and with it; nothing where that would leave nothing of a name."""
    different = sorted(set(names))
    if len(different) < 2:
        return ""
    start = os.path.commonprefix(different)  # noqa: RUF071 letters, no folders
    start = start[: start.rfind("-") + 1]
    return "" if start in different else start


def _renamed(record: Latency, names: Mapping[str, str], start: str) -> Latency:
    equality = record.equality
    if equality is not None:
        equality = replace(equality, reference=names.get(equality.reference, equality.reference))
    return replace(
        record,
        candidate=names[record.candidate],
        model=replace(record.model, name=record.model.name.removeprefix(start)),
        equality=equality,
        against=tuple(replace(one, baseline=names.get(one.baseline, one.baseline)) for one in record.against),
    )
