"""Which records belong together: a run's decoders on one test set at one batch size, side by side.

Ratios are taken within a run only, over the sentences that both sides decoded. Where an experiment was run again, the
later run stands for it. Records keep the names of candidates whole; tables and plots leave out what all of them share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TypeVar

from longstride.bench.record_parts import Origin, WorkloadTag
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
    def name(self) -> str:
        """A name for files and markers: letters, digits and hyphens."""
        parts = [self.origin.experiment, self.workload.name, self.origin.machine.device, f"batch {self.batch_size}"]
        return slug(" ".join(parts))

    @property
    def where(self) -> str:
        """What was decoded how, and on what."""
        return f"{self.workload.name}, batch size {self.batch_size}, {self.origin.machine.device}"

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


def bench_runs(records: Iterable[Record]) -> list[BenchRun]:
    """All runs, of each experiment the latest, sorted by experiment, device, workload and batch size."""
    groups: dict[tuple[str, str, str, int], dict[tuple[str, str], list[Latency]]] = {}
    for record in records:
        if isinstance(record, Latency):
            origin = record.origin
            key = (origin.experiment, origin.machine.device, record.workload.name, record.batch_size)
            groups.setdefault(key, {}).setdefault((origin.date, origin.run), []).append(record)
    return [BenchRun(tuple(sorted(runs[max(runs)], key=lambda one: one.order))) for _, runs in sorted(groups.items())]


def speed_up(record: Latency, baseline: Latency) -> Ratio | None:
    """How many times faster than the baseline, over what both decoded; none where they have nothing in common."""
    pairs = paired_times(record, baseline)
    if not pairs:
        return None
    return ratio_of_means([theirs for theirs, _ in pairs], [ours for _, ours in pairs])


def paired_times(record: Latency, baseline: Latency) -> list[tuple[float, float]]:
    """Per sentence (or per batch, where both have the same) the baseline's and the record's mean time."""
    ours, theirs = per_item(record.latencies_us), per_item(baseline.latencies_us)
    if record.batch_size > 1:
        same = record.batches == baseline.batches and record.places == baseline.places
        return list(zip(theirs, ours, strict=True)) if same else []
    by_place = dict(zip(baseline.places, theirs, strict=True))
    return [(by_place[place], time) for place, time in zip(record.places, ours, strict=True) if place in by_place]


def latest(records: Sequence[R], key: str) -> list[R]:
    """Of records that agree in the field `key` and the experiment only the latest, in order of date."""
    kept: dict[tuple[str, str], R] = {}
    for record in sorted(records, key=lambda one: one.origin.date):
        kept[record.origin.experiment, getattr(record, key)] = record
    return sorted(kept.values(), key=lambda one: (one.origin.experiment, one.origin.date, getattr(one, key)))


def quality_groups(records: Iterable[Record]) -> list[list[Quality]]:
    """Quality records by experiment and workload; of each candidate, model and precision the latest, in their order."""
    groups: dict[tuple[str, str], dict[tuple[str, str, str], Quality]] = {}
    for record in sorted((one for one in records if isinstance(one, Quality)), key=lambda one: one.origin.date):
        group = groups.setdefault((record.origin.experiment, record.workload.name), {})
        group[record.candidate, record.model.name, record.precision] = record
    return [
        sorted(group.values(), key=lambda one: (one.order, one.candidate, one.model.name, one.precision))
        for _, group in sorted(groups.items())
    ]


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
            found.append(mine if precision == first else [_named(record, precision) for record in mine])
    return found


def _named(record: Quality, precision: str) -> Quality:
    experiment = f"{record.origin.experiment}, {precision or 'precision unknown'}"
    return replace(record, origin=replace(record.origin, experiment=experiment))


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
    # Of sorted names, what the first and the last share is shared by all between.
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(different[0], different[-1], strict=False))
    start = "".join(letter for letter, _ in pairs)
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
