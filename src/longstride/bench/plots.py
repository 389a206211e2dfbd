"""Three figures of a run: quality against speed-up, latency against source length, speed-up sentence by sentence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from longstride.bench.comparison import BenchRun, paired_times, speed_up
from longstride.bench.figure import INK, MIDDLE, Picture, colours_by
from longstride.bench.records import Latency
from longstride.bench.statistics import per_item

LENGTH_BINS = 10
MARKERS = "o^DvPX<>sp*hd8"
"""Shapes of points: one for each decoder of a family."""
LIST_LETTERS = 136
"""How many letters a line of the list of names has room for."""
FEW = 8
"""At most one point in so many is left out of a range."""
DASHES = (0, (4, 3))


@dataclass(frozen=True)
class Plot(Picture):
    """One figure of one run."""

    name: str
    title: str
    told: str
    run: BenchRun
    height: float
    drawn_by: Callable[[Any, BenchRun], None]

    @property
    def shown(self) -> Any:
        """What of the records is drawn."""
        return [
            (
                *(one.candidate, one.role, one.order, one.decoder, one.places),
                *(one.latencies_us, one.source_lengths, [(score.name, score.value) for score in one.scores]),
            )
            for one in self.run.records
        ]

    def draw(self, figure: Any) -> None:
        """On a matplotlib figure."""
        self.drawn_by(figure, self.run)


def plots(run: BenchRun) -> list[Plot]:
    """The figures that a run has something to show for."""
    if run.batch_size != 1 or not run.baselines:
        return []
    run = run.shortened()
    baseline = run.baselines[0]
    precisions = ", ".join(dict.fromkeys(record.precision for record in run.records))
    told = f"{run.workload.name}  ·  {run.origin.machine.device}, {precisions}  ·  batch size {run.batch_size}"
    scored, others = _scored_alike(run), [one for one in run.records if one.role == "candidate"]
    chosen = []
    if len(scored) > 1:
        title = f"{_metric(run)} against speed-up over {baseline.candidate}"
        sample = "" if baseline.sentences is None else f"  ·  a sample of {len(baseline.sentences):,} sentences"
        height = 4.6 + 0.19 * _list_lines(scored)
        chosen.append(Plot(f"{run.name}-quality", title, told + sample, run, height, quality_against_speed_up))
    title, what = "Latency against source length", "median of bins of equally many sentences"
    height = max(4.4, 1.6 + 0.19 * len(run.records))
    chosen.append(Plot(f"{run.name}-lengths", title, f"{told}  ·  {what}", run, height, latency_against_length))
    if others:
        title = f"Speed-up over {baseline.candidate}, sentence by sentence"
        what = "median, middle half, 5th to 95th percentile"
        height = 1.6 + 0.32 * len(others)
        chosen.append(Plot(f"{run.name}-sentences", title, f"{told}  ·  {what}", run, height, speed_up_by_sentence))
    return chosen


def quality_against_speed_up(figure: Any, run: BenchRun) -> None:
    """One point per decoder; up is better, right is faster. Few that are far below stand at the lower edge."""
    names = 0.19 * _list_lines(_scored_alike(run))
    axes, below = figure.subplots(2, height_ratios=[4.0, names])
    baseline, colours = run.baselines[0], _colours(run)
    found = [(record, speed) for record in _scored_alike(run) if (speed := speed_up(record, baseline)) is not None]
    families = list(dict.fromkeys(map(_family, run.records)))
    found.sort(key=lambda one: families.index(_family(one[0])))
    level = next((place for place, (record, _) in enumerate(found) if record.candidate == baseline.candidate), None)
    low, high = main_range([record.scores[0].value for record, _ in found], () if level is None else (level,))
    margin = 0.12 * (high - low) or 1.0
    low, high = low - margin, high + margin
    seen: Counter[str] = Counter()
    for record, speed in found:
        name, colour, quality = record.candidate, colours[record.candidate], record.scores[0].value
        if quality < low:
            name, quality = f"{name} ↓ {quality:.2f}", low + 0.04 * (high - low)
        shape = MARKERS[seen[_family(record)] % len(MARKERS)]
        seen[_family(record)] += 1
        face = "white" if record.role == "baseline" else colour
        axes.plot([speed.low, speed.high], [quality] * 2, color=colour, linewidth=1.2, alpha=0.6, zorder=2)
        axes.plot(speed.value, quality, shape, color=colour, label=name, markersize=8, markerfacecolor=face, alpha=0.85)
    if level is not None:
        axes.axhline(found[level][0].scores[0].value, color=MIDDLE, linewidth=0.8, linestyle=DASHES, zorder=1)
    _speed_axis(axes, [speed.value for _, speed in found])
    axes.set(
        ylim=(low, high), ylabel=_metric(run), xlabel=f"speed-up over {baseline.candidate} (ratio of mean latencies)"
    )
    below.set_axis_off()
    below.legend(*axes.get_legend_handles_labels(), loc="upper center", ncols=_list_columns(_scored_alike(run)))


def latency_against_length(figure: Any, run: BenchRun) -> None:
    """Median per bin of equally many sentences."""
    from matplotlib import ticker

    axes = figure.subplots()
    colours = _colours(run)
    lines = [(record, *_binned(record)) for record in run.records]
    seen: Counter[str] = Counter()
    for record, lengths, times in sorted(lines, key=lambda line: -line[2][-1]):  # the legend in the order of the lines
        style = "--" if record.role == "baseline" else "-"
        shape = MARKERS[seen[_family(record)] % len(MARKERS)]
        seen[_family(record)] += 1
        axes.plot(
            lengths, times, style, color=colours[record.candidate], label=record.candidate, marker=shape, markersize=4
        )
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set(xlabel="source length (tokens)", ylabel="latency (ms)", xlim=(0, None))
    figure.legend(loc="outside right upper")


def speed_up_by_sentence(figure: Any, run: BenchRun) -> None:
    """How the speed-up is spread over sentences: the median hides those that gain nothing."""
    axes = figure.subplots()
    baseline, colours = run.baselines[0], _colours(run)
    ratios = {
        record.candidate: [theirs / ours for theirs, ours in paired_times(record, baseline)]
        for record in reversed(run.records)
        if record.role == "candidate"
    }
    ratios = {name: some for name, some in ratios.items() if some}
    shown = [1.0]
    for place, (name, some) in enumerate(ratios.items()):
        first, quarter, middle, three, last = np.percentile(some, [5, 25, 50, 75, 95])
        axes.plot([first, last], [place] * 2, color=colours[name], linewidth=1.2)
        axes.plot([quarter, three], [place] * 2, color=colours[name], linewidth=5, solid_capstyle="butt")
        axes.plot(middle, place, "o", color=colours[name], markerfacecolor="white", markersize=6.5)
        shown += [first, last]
    _speed_axis(axes, shown)
    axes.axvline(1.0, color=MIDDLE, linewidth=0.8, linestyle=DASHES, zorder=1)
    axes.set_yticks(range(len(ratios)), [f"{name}   {np.median(some):.2f}×" for name, some in ratios.items()])
    for tick, name in zip(axes.get_yticklabels(), ratios, strict=True):
        tick.set_color(colours[name])
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"speed-up over {baseline.candidate} on the same sentence")


def main_range(values: Sequence[float], kept: Collection[int] = ()) -> tuple[float, float]:
    """The least and the greatest of all values, or of all but a few low ones where these would take half the range.

    Those at the places `kept` are never left out.
    """
    order = sorted(range(len(values)), key=lambda place: values[place])
    low, high = values[order[0]], values[order[-1]]
    for left_out in range(1, len(values) // FEW + 1):
        if order[left_out - 1] in kept:
            break
        lowest = values[order[left_out]]
        if high - lowest <= (high - low) / 2:
            return lowest, high
    return low, high


def _scored_alike(run: BenchRun) -> list[Latency]:
    """Those that decoded the same sentences as the first baseline: scores of others cannot be compared with its."""
    return [record for record in run.records if record.places == run.baselines[0].places]


def _list_columns(records: Sequence[Latency]) -> int:
    return max(1, min(3, LIST_LETTERS // (8 + max(len(record.candidate) for record in records))))


def _list_lines(records: Sequence[Latency]) -> int:
    return math.ceil(len(records) / _list_columns(records))


def _metric(run: BenchRun) -> str:
    return run.records[0].scores[0].name


def _colours(run: BenchRun) -> dict[str, str]:
    """A colour per kind of decoder, in order of appearance; baselines are black and grey."""
    families = colours_by([_family(record) for record in run.records if record.role != "baseline"])
    first = run.baselines[0].candidate
    grey = {one.candidate: INK if one.candidate == first else MIDDLE for one in run.baselines}
    return {one.candidate: grey.get(one.candidate) or families[_family(one)] for one in run.records}


def _family(record: Latency) -> str:
    """The kind of decoder; baselines are one of their own."""
    return "" if record.role == "baseline" else record.decoder.partition("|")[0]


def _binned(record: Latency) -> tuple[list[float], list[float]]:
    """Mean length, and median latency in ms, per bin of equally many sentences."""
    lengths = np.array(record.source_lengths)
    milliseconds = np.array(per_item(record.latencies_us)) / 1000
    order = np.argsort(lengths, kind="stable")
    bins = [part for part in np.array_split(order, min(LENGTH_BINS, len(order))) if part.size]
    return [float(lengths[part].mean()) for part in bins], [float(np.median(milliseconds[part])) for part in bins]


def _speed_axis(axes: Any, ratios: Sequence[float]) -> None:
    """Doublings are equally far apart, with some air at both ends."""
    from matplotlib import ticker

    axes.set_xscale("log", base=2)
    axes.set_xlim(min(ratios) / 1.25, max(ratios) * 1.25)
    spread = max(ratios) / min(ratios)
    parts = (1, 1.25, 1.5, 1.75) if spread < 3 else (1, 1.5) if spread < 12 else (1,)
    axes.xaxis.set_major_locator(ticker.LogLocator(base=2, subs=parts))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.3g}×")
    axes.xaxis.set_minor_locator(ticker.NullLocator())
