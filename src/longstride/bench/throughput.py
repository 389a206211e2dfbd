"""Throughput by batch size: the races of one experiment side by side, sentences per second and speed-ups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from longstride.bench.cells import NOTHING, Column, origin_note, with_notes
from longstride.bench.charts import Chart, Line, Panel
from longstride.bench.names import shortened
from longstride.bench.races import Race, races, slug, speed_up
from longstride.bench.records import Latency, Record
from longstride.bench.sections import Section
from longstride.bench.statistics import per_second


def throughput_sections(records: Sequence[Record]) -> list[Section]:
    """One per experiment, test set and device that were timed at several batch sizes with a baseline."""
    groups: dict[tuple[str, str, str], list[Race]] = {}
    for race in races(records):
        if race.baselines:
            key = (race.origin.experiment, race.workload.name, race.origin.machine.device)
            groups.setdefault(key, []).append(shortened(race))
    return [_section(*key, some) for key, some in sorted(groups.items()) if len(some) > 1]


def _section(experiment: str, workload: str, device: str, some: Sequence[Race]) -> Section:
    """A row per decoder, a column per batch size; ratios are to the first baseline at the same batch size."""
    names = list(dict.fromkeys(one.candidate for race in some for one in race.records))
    found = {(one.candidate, race.batch_size): _rates(one, race) for race in some for one in race.records}
    columns = [Column("decoder", names, numeric=False)]
    for race in some:
        size = race.batch_size
        columns.append(Column(f"batch {size}", [_cell(found.get((name, size))) for name in names]))
    baseline = some[0].baselines[0].candidate
    unsaid = some[0].unsaid
    precisions = _all(one.precision for race in some for one in race.records)
    notes = [
        f"Sentences per second, in brackets over {baseline} at the same batch size; {workload}.",
        f"The models' names begin with `{unsaid}`, left out here." if unsaid else "",
        f"Runtime: {_all(one.runtime for race in some for one in race.records)}. Precision: {precisions}.",
        origin_note([race.origin for race in some]),
    ]
    lines = tuple(
        Line(
            name,
            tuple((float(race.batch_size), found[name, race.batch_size][0]) for race in some if _has(name, race)),
            baseline=name == baseline,
        )
        for name in names
    )
    place = slug(f"{experiment} {workload} {device}")
    panel = Panel("batch size", "sentences per second", lines, "doubling")
    chart = Chart(f"{place}-throughput", "Throughput by batch size", f"{workload}  ·  {device}, {precisions}", (panel,))
    topic = f"{experiment}: throughput by batch size"
    return Section(f"throughput/{place}", topic, f"{workload}, {device}", with_notes(columns, notes), (chart,))


def _rates(one: Latency, race: Race) -> tuple[float, float | None]:
    """Sentences per second, and times the first baseline."""
    ratio = speed_up(one, race.baselines[0])
    return per_second(len(one.output_lengths), one.latencies_us), None if ratio is None else ratio.value


def _cell(rates: tuple[float, float | None] | None) -> str:
    if rates is None:
        return NOTHING
    each, ratio = rates
    told = f"{each:,.0f}" if each >= 100 else f"{each:.1f}"
    return told if ratio is None else f"{told} ({ratio:.2f}×)"


def _has(name: str, race: Race) -> bool:
    return any(one.candidate == name for one in race.records)


def _all(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))
