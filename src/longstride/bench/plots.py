"""What figures show: lines with points in panels, and of a run quality, latency and speed-ups. Matplotlib lays out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from longstride.bench.comparison import BenchRun, paired_times, speed_up
from longstride.bench.figure import COLOURS, INK, MIDDLE, Picture
from longstride.bench.records import Latency
from longstride.bench.statistics import per_item

LENGTH_BINS = 10
MOST_TICKS = 12
MARKERS = "o^DvPX<>sp*hd8"
"""Shapes of points: one for each member of a family."""
FEW = 8
"""At most one point in so many is left out of a range."""
LINE = 0.19
"""Inches that a line of a legend takes."""


@dataclass(frozen=True)
class Line:
    """Points joined by a line."""

    name: str
    points: tuple[tuple[float, float], ...]
    baseline: bool = False
    """What others are compared with is black or grey, and dashed."""
    family: str = ""
    """Lines of one family have one colour."""


@dataclass(frozen=True)
class Panel:
    """Lines over two axes."""

    x: str
    y: str
    lines: tuple[Line, ...]
    scale: str = "linear"
    """Of the horizontal axis: linear, or whole and doubling, which mark just the places that have points."""
    log: bool = False
    """Of the vertical axis."""


def chart(name: str, title: str, told: str, panels: Sequence[Panel], height: float = 4.4) -> Picture:
    """A figure of lines, its panels side by side."""
    return Picture(name, title, told, height, [asdict(panel) for panel in panels], partial(_draw_panels, panels))


def plots(run: BenchRun) -> list[Picture]:
    """The figures that a run has something to show for."""
    if run.batch_size != 1 or run.batch_kind == "open" or not run.baselines:
        return []
    run = run.shortened()
    baseline = run.baselines[0]
    precisions = ", ".join(dict.fromkeys(record.precision for record in run.records))
    told = f"{run.workload.name}  ·  {run.origin.machine.device}, {precisions}  ·  batch size {run.batch_size}"
    scored, others = _scored_alike(run), [one for one in run.records if one.role == "candidate"]
    drawn = [
        (
            *(one.candidate, one.role, one.order, one.decoder, one.places),
            *(one.latencies_us, one.source_lengths, [(score.name, score.value) for score in one.scores]),
        )
        for one in run.records
    ]
    found = []
    if len(scored) > 1:
        title = f"{_metric(run)} against speed-up over {baseline.candidate}"
        sample = "" if baseline.sentences is None else f"  ·  a sample of {len(baseline.sentences):,} sentences"
        height, draw = max(4.8, 1.6 + LINE * len(scored)), partial(_draw_quality, run)
        found.append(Picture(f"{run.name}-quality", title, told + sample, height, drawn, draw))
    panel = Panel("source length (tokens)", "latency (ms)", tuple(map(_by_length, run.records)), log=True)
    height, what = max(4.4, 1.6 + LINE * len(run.records)), "median of bins of equally many sentences"
    title = "Latency against source length"
    found.append(chart(f"{run.name}-lengths", title, f"{told}  ·  {what}", [panel], height))
    if others:
        title = f"Speed-up over {baseline.candidate}, sentence by sentence"
        what = "median, middle half, 5th to 95th percentile"
        height, draw = 1.6 + 0.32 * len(others), partial(_draw_spread, run)
        found.append(Picture(f"{run.name}-sentences", title, f"{told}  ·  {what}", height, drawn, draw))
    return found


def _draw_panels(panels: Sequence[Panel], figure: Any) -> None:
    """All panels, with one legend for lines of the same names."""
    from matplotlib import ticker

    every = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, panel in zip(every, panels, strict=True):
        looks = _looks("" if line.baseline else line.family or line.name for line in panel.lines)
        for line, look in zip(panel.lines, looks, strict=True):
            style = "--" if line.baseline else "-"
            axes.plot(*zip(*line.points, strict=True), style, label=line.name, markersize=4, **look)
        places = sorted({x for line in panel.lines for x, _ in line.points})
        if panel.scale == "doubling":
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        if panel.scale != "linear" and len(places) <= MOST_TICKS:
            axes.set_xticks(places, [f"{place:g}" for place in places])
            axes.minorticks_off()
        if panel.log:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter(ticker.NullFormatter())
        axes.set(xlabel=panel.x, ylabel=panel.y)
    # In the order in which the lines of the first panel end, from above.
    ends = {line.name: line.points[-1][1] for line in panels[0].lines}
    named = dict(zip(*every[0].get_legend_handles_labels()[::-1], strict=True))
    order = sorted(named, key=lambda name: -ends[name])
    figure.legend([named[name] for name in order], order, loc="outside right upper")


def _draw_quality(run: BenchRun, figure: Any) -> None:
    """One point per decoder; up is better, right is faster. Few that are far below stand at the lower edge."""
    axes = figure.subplots()
    baseline = run.baselines[0]
    found = [(record, speed) for record in _scored_alike(run) if (speed := speed_up(record, baseline)) is not None]
    families = list(dict.fromkeys(map(_family, run.records)))
    found.sort(key=lambda one: families.index(_family(one[0])))
    level = next((place for place, (record, _) in enumerate(found) if record.candidate == baseline.candidate), None)
    low, high = main_range([record.scores[0].value for record, _ in found], () if level is None else (level,))
    margin = 0.12 * (high - low) or 1.0
    low, high = low - margin, high + margin
    for (record, speed), look in zip(found, _looks(_family(record) for record, _ in found), strict=True):
        name, quality = record.candidate, record.scores[0].value
        if quality < low:
            name, quality = f"{name} ↓ {quality:.2f}", low + 0.04 * (high - low)
        face = "white" if record.role == "baseline" else look["color"]
        axes.plot([speed.low, speed.high], [quality] * 2, color=look["color"], linewidth=1.2, alpha=0.6)
        look |= {"markersize": 8, "markerfacecolor": face, "alpha": 0.85}
        axes.plot(speed.value, quality, label=name, linestyle="none", **look)
    if level is not None:
        axes.axhline(found[level][0].scores[0].value, color=MIDDLE, linewidth=0.8, linestyle="--", zorder=1)
    _speed_axis(axes, [speed.value for _, speed in found])
    axes.set(ylim=(low, high), ylabel=_metric(run))
    axes.set_xlabel(f"speed-up over {baseline.candidate} (ratio of mean latencies)")
    figure.legend(loc="outside right upper")


def _draw_spread(run: BenchRun, figure: Any) -> None:
    """How the speed-up is spread over sentences: the median hides those that gain nothing."""
    axes = figure.subplots()
    baseline = run.baselines[0]
    records = [record for record in run.records if record.role == "candidate" and paired_times(record, baseline)]
    colours = [look["color"] for look in _looks(map(_family, records))]
    names, shown = [], [1.0]
    for place, (record, colour) in enumerate(zip(records, colours, strict=True)):
        ratios = [theirs / ours for theirs, ours in paired_times(record, baseline)]
        first, quarter, middle, three, last = np.percentile(ratios, [5, 25, 50, 75, 95])
        axes.plot([first, last], [place] * 2, color=colour, linewidth=1.2)
        axes.plot([quarter, three], [place] * 2, color=colour, linewidth=5, solid_capstyle="butt")
        axes.plot(middle, place, "o", color=colour, markerfacecolor="white", markersize=6.5)
        names.append(f"{record.candidate}   {middle:.2f}×")
        shown += [first, last]
    _speed_axis(axes, shown)
    axes.axvline(1.0, color=MIDDLE, linewidth=0.8, linestyle="--", zorder=1)
    axes.set_yticks(range(len(names)), names)
    for tick, colour in zip(axes.get_yticklabels(), colours, strict=True):
        tick.set_color(colour)
    axes.invert_yaxis()
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


def _looks(families: Iterable[str]) -> list[dict[str, Any]]:
    """A colour for each family and a marker for each of its members; that without a name is of baselines."""
    members: Counter[str] = Counter()
    colours: dict[str, str] = {}
    found = []
    for family in families:
        if family:
            colours.setdefault(family, COLOURS[len(colours) % len(COLOURS)])
        colour = colours[family] if family else MIDDLE if members[family] else INK
        found.append({"color": colour, "marker": MARKERS[members[family] % len(MARKERS)]})
        members[family] += 1
    return found


def _scored_alike(run: BenchRun) -> list[Latency]:
    """Those with scores that decoded the same sentences as the first baseline: those of others cannot be compared."""
    return [record for record in run.records if record.scores and record.places == run.baselines[0].places]


def _metric(run: BenchRun) -> str:
    return _scored_alike(run)[0].scores[0].name


def _family(record: Latency) -> str:
    """The kind of decoder; baselines are one of their own."""
    return "" if record.role == "baseline" else record.decoder.partition("|")[0]


def _by_length(record: Latency) -> Line:
    """Median latency in ms against mean length, by bins of equally many sentences."""
    lengths = np.array(record.source_lengths)
    milliseconds = np.array(per_item(record.latencies_us)) / 1000
    bins = np.array_split(np.argsort(lengths, kind="stable"), min(LENGTH_BINS, len(lengths)))
    points = tuple((float(lengths[part].mean()), float(np.median(milliseconds[part]))) for part in bins)
    return Line(record.candidate, points, record.role == "baseline", _family(record))


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
