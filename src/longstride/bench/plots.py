"""Three figures of a race: quality against speed-up, latency against source length, speed-up sentence by sentence.

Each carries a hash of the data it shows, so that a check can tell whether it is up to date without drawing it again:
different versions of matplotlib give different bytes for the same figure.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from longstride.bench import crowds, drawing
from longstride.bench.names import shortened
from longstride.bench.races import Race, paired_times, speed_up
from longstride.bench.records import Latency
from longstride.bench.statistics import per_item

STYLE = 1
"""raised when figures should be drawn anew though their data are the same"""

QUALITY_STYLE = 2
"""the same for quality against speed-up alone"""

MARKER = "<!-- longstride data sha256:"

WIDTH = 8.6
LENGTH_BINS = 10
MOST_BANDS = 5
"""Where more are drawn over one another nothing can be read from them."""

MOST_NAMES = 9
"""Where there are more points their names would cover them: they have numbers, and a list below says whose."""

LIST_LETTERS = 124
"""how many letters a line of the list has room for"""
LIST_LINE = 0.19


@dataclass(frozen=True)
class Plot:
    """One figure of one race."""

    name: str
    title: str
    """also what stands for the figure where it cannot be seen"""
    race: Race
    height: float
    draw: Callable[[Any, Race], None]
    style: int = STYLE

    @property
    def digest(self) -> str:
        """SHA-256 over all that the figure is drawn from."""
        shown = [
            (
                *(one.candidate, one.role, one.order, one.decoder, one.places, one.precision),
                *(one.latencies_us, one.source_lengths, [(score.name, round(score.value, 6)) for score in one.scores]),
            )
            for one in self.race.records
        ]
        told = [self.style, self.name, self.title, self.race.title, shown]
        return hashlib.sha256(json.dumps(told, ensure_ascii=True).encode()).hexdigest()

    def svg(self) -> bytes:
        """The figure as SVG, its digest in a comment."""
        drawn = self._rendered("svg").decode()
        start = drawn.index("<svg")
        return (drawn[:start] + marker(self.digest) + "\n" + drawn[start:]).encode()

    def png(self) -> bytes:
        """The figure as PNG."""
        return self._rendered("png")

    def _rendered(self, form: str) -> bytes:
        return drawing.rendered(lambda figure: self.draw(figure, self.race), (WIDTH, self.height), form)


def marker(digest: str) -> str:
    """The comment by which a figure says what it was drawn from."""
    return f"{MARKER}{digest} -->"


def plots(race: Race) -> list[Plot]:
    """The figures that a race has something to show for."""
    if race.batch_size != 1 or not race.baselines:
        return []
    race = shortened(race)
    baseline, others = race.baselines[0], [one for one in race.records if one.role == "candidate"]
    chosen = [
        Plot(f"{race.name}-lengths", "Latency against source length", race, 4.8, latency_against_length),
    ]
    if len(_scored_alike(race)) > 1:
        title = f"{_metric(race)} against speed-up over {baseline.candidate}"
        height = 5.0 + _list_height(_names(race))
        chosen.insert(0, Plot(f"{race.name}-quality", title, race, height, quality_against_speed_up, QUALITY_STYLE))
    if others:
        title = f"Speed-up over {baseline.candidate}, sentence by sentence"
        height = 1.7 + 0.42 * len(others)
        chosen.append(Plot(f"{race.name}-sentences", title, race, height, speed_up_by_sentence))
    return chosen


def quality_against_speed_up(figure: Any, race: Race) -> None:
    """One point per decoder; up is better, right is faster."""
    baseline, colours, names = race.baselines[0], _colours(race), _names(race)
    listed = _list_height(names)
    axes, below = figure.subplots(2, height_ratios=[4.0, listed]) if listed else (figure.subplots(), None)
    found = [(record, speed) for record in _by_family(race) if (speed := speed_up(record, baseline)) is not None]
    level = next((place for place, (record, _) in enumerate(found) if record.candidate == baseline.candidate), None)
    low, high = crowds.bulk([record.scores[0].value for record, _ in found], () if level is None else (level,))
    margin = 0.12 * (high - low) or 1.0
    low, high = low - margin, high + margin
    points, bars, entries = [], [], []
    for place, (record, speed) in enumerate(found, start=1):
        name, colour, hollow = names[record.candidate], colours[record.candidate], record.role == "baseline"
        quality, label = record.scores[0].value, str(place) if listed else name
        entries.append((label, name, colour, hollow))
        if quality < low:
            label = f"{label} ↓ {quality:.2f}"
            quality = low + 0.04 * (high - low)
            axes.plot(speed.value, quality, "v", markersize=8.5, color=colour, zorder=3)
        else:
            # A rim keeps many apart where they touch.
            rim = {"markersize": 7, "markeredgecolor": "white", "markeredgewidth": 0.7} if listed and not hollow else {}
            drawing.dot(axes, speed.value, quality, colour, hollow, 5.5 if listed else 7.5, **rim)
        axes.plot([speed.low, speed.high], [quality] * 2, color=colour, linewidth=1.2, alpha=0.6, zorder=2)
        points.append((speed.value, quality, label, colour))
        bars.append((speed.low, speed.high, quality))
    levels = [] if level is None else [points[level][1]]
    for height in levels:
        axes.axhline(height, color=drawing.MIDDLE, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    _speed_axis(axes, [x for x, *_ in points])
    axes.set_ylim(low, high)
    axes.set_ylabel(_metric(race))
    axes.set_xlabel(f"speed-up over {baseline.candidate} (ratio of mean latencies)")
    axes.set_title(f"{_metric(race)} against speed-up")
    sample = baseline.sentences
    drawing.subtitle(axes, _told(race) + (f"  ·  a sample of {len(sample):,} sentences" if sample is not None else ""))
    if below is None:
        drawing.label_points(axes, points, bars)
    else:
        drawing.name_list(below, entries, _list_columns(names))
        drawing.number_points(axes, points, bars, levels)


def latency_against_length(figure: Any, race: Race) -> None:
    """Median per bin of equally many sentences, and, for few, between which times four fifths of them lie."""
    from matplotlib import ticker

    axes = figure.subplots()
    colours = _colours(race)
    ends = []
    rightmost = 0.0
    for record in race.records:
        centres, middle, low, high = _binned(record)
        colour = colours[record.candidate]
        style = "--" if record.role == "baseline" else "-"
        if len(race.records) <= MOST_BANDS:
            axes.fill_between(centres, low, high, color=colour, alpha=0.10, linewidth=0)
        axes.plot(centres, middle, style, color=colour, linewidth=1.8, marker="o", markersize=3.2)
        rightmost = max(rightmost, centres[-1])
        ends.append((centres[-1], middle[-1], record.candidate, colour))
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: "")
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    axes.set_xlim(left=0, right=rightmost)
    axes.set_xlabel("source length (tokens)")
    axes.set_ylabel("latency (ms)")
    axes.set_title("Latency against source length")
    shown = "median, band: 10th to 90th percentile" if len(race.records) <= MOST_BANDS else "median"
    drawing.subtitle(axes, f"{_told(race)}  ·  {shown}")
    drawing.spread_labels(axes, rightmost, [(y, name, colour) for _, y, name, colour in ends])


def speed_up_by_sentence(figure: Any, race: Race) -> None:
    """How the speed-up is spread over sentences: the median hides those that gain nothing."""
    axes = figure.subplots()
    baseline, colours = race.baselines[0], _colours(race)
    others = [record for record in race.records if record.role == "candidate"]
    shown: list[float] = []
    names: list[str] = []
    for record in others:
        ratios = np.array([theirs / ours for theirs, ours in paired_times(record, baseline)])
        if not ratios.size:
            continue
        place = -len(names)
        names.append(record.candidate)
        colour = colours[record.candidate]
        first, quarter, middle, three, last = np.percentile(ratios, [5, 25, 50, 75, 95])
        shown += [first, last]
        heights, edges = _density(np.log(ratios))
        axes.fill_between(np.exp(edges), place, place + 0.62 * heights, color=colour, alpha=0.22, linewidth=0, zorder=2)
        axes.plot([first, last], [place] * 2, color=colour, linewidth=1.2, zorder=3, solid_capstyle="butt")
        axes.plot([quarter, three], [place] * 2, color=colour, linewidth=4.5, zorder=3, solid_capstyle="butt")
        axes.plot(
            middle, place, "o", color="white", markeredgecolor=colour, markersize=6.5, markeredgewidth=1.6, zorder=4
        )
        axes.annotate(
            drawing.times(round(float(middle), 1)), (middle, place), (0, -13), textcoords="offset points",
            ha="center", va="center", fontsize=8, color=colour,
        )  # fmt: skip
    _speed_axis(axes, [1.0, *shown])
    axes.axvline(1.0, color=drawing.MIDDLE, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    axes.set_yticks([-place for place in range(len(names))], names)
    for tick, name in zip(axes.get_yticklabels(), names, strict=True):
        tick.set_color(colours[name])
    axes.set_ylim(-len(names) + 0.35, 0.85)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"speed-up over {baseline.candidate} on the same sentence")
    told = _told(race) + "  ·  median, middle half, 5th to 95th percentile"
    drawing.titles_over_labels(axes, "Speed-up sentence by sentence", told)


def _scored_alike(race: Race) -> list[Latency]:
    """Those that decoded the same sentences as the first baseline: scores of others cannot be compared with its."""
    return [record for record in race.records if record.places == race.baselines[0].places]


def _by_family(race: Race) -> list[Latency]:
    """What has a point in quality against speed-up, many kind by kind of decoder; else in the order of the table."""
    records = _scored_alike(race)
    if len(records) > MOST_NAMES:
        families = list(dict.fromkeys(_family(record) for record in race.records))
        records.sort(key=lambda record: families.index(_family(record)))
    return records


def _names(race: Race) -> dict[str, str]:
    """What these are called there: a model that has its decoder's name is named once, lattice for lattice lattice."""
    whole = [record.candidate for record in _scored_alike(race)]
    once = []
    for name in whole:
        first, _, rest = name.partition(" ")
        once.append(rest if rest.partition(" ")[0] == first else name)
    return dict(zip(whole, once if len(set(once)) == len(whole) else whole, strict=True))


def _list_columns(names: Mapping[str, str]) -> int:
    return max(1, min(3, LIST_LETTERS // (6 + max(map(len, names.values())))))


def _list_height(names: Mapping[str, str]) -> float:
    """Inches for the list of names below; none where each has room beside its point."""
    return LIST_LINE * math.ceil(len(names) / _list_columns(names)) if len(names) > MOST_NAMES else 0.0


def _metric(race: Race) -> str:
    return race.records[0].scores[0].name


def _told(race: Race) -> str:
    """The line that no figure should be without: data, device, precision, batch size."""
    precisions = ", ".join(dict.fromkeys(record.precision for record in race.records))
    return f"{race.workload.name}  ·  {race.origin.machine.device}, {precisions}  ·  batch size {race.batch_size}"


def _colours(race: Race) -> dict[str, str]:
    """A colour per kind of decoder, in order of appearance; baselines are grey."""
    result: dict[str, str] = {}
    families: dict[str, str] = {}
    for record in race.records:
        if record.role == "baseline":
            result[record.candidate] = drawing.INK if not result else drawing.MIDDLE
            continue
        family = _family(record)
        families.setdefault(family, drawing.COLOURS[len(families) % len(drawing.COLOURS)])
        result[record.candidate] = families[family]
    return result


def _family(record: Latency) -> str:
    """The kind of decoder; baselines are one of their own."""
    return "" if record.role == "baseline" else record.decoder.partition("|")[0]


def _binned(record: Latency) -> tuple[list[float], list[float], list[float], list[float]]:
    """Mean length, then median, 10th and 90th percentile of latency in ms, per bin of equally many sentences."""
    lengths = np.array(record.source_lengths)
    milliseconds = np.array(per_item(record.latencies_us)) / 1000
    order = np.argsort(lengths, kind="stable")
    bins = [part for part in np.array_split(order, min(LENGTH_BINS, len(order))) if part.size]
    centres = [float(lengths[part].mean()) for part in bins]
    low, middle, high = np.array([np.percentile(milliseconds[part], [10, 50, 90]) for part in bins]).T
    return centres, middle.tolist(), low.tolist(), high.tolist()


def _density(values: Any) -> tuple[Any, Any]:
    """A smooth histogram, its highest point 1: heights and where they stand."""
    low, high = np.percentile(values, [1, 99])
    # Silverman's rule, kept from vanishing where all values agree.
    width = max(0.02, 1.06 * float(np.std(values)) * len(values) ** -0.2)
    places = np.linspace(low - 2 * width, high + 2 * width, 80)
    heights = np.exp(-0.5 * ((places[:, None] - values[None, :]) / width) ** 2).sum(axis=1)
    return heights / heights.max(), places


def _speed_axis(axes: Any, ratios: Sequence[float]) -> None:
    """Doublings are equally far apart, with some air at both ends."""
    axes.set_xscale("log")
    low, high = min(ratios) / 1.25, max(ratios) * 1.35
    axes.set_xlim(low, high)
    axes.set_xticks(speed_ticks(low, high))
    axes.xaxis.set_major_formatter(drawing.times)
    axes.xaxis.set_minor_formatter(lambda value, _: "")
    axes.tick_params(axis="x", which="minor", length=0)


def speed_ticks(low: float, high: float) -> list[float]:
    """Round ratios between two bounds: doublings, or finer ones where these would be too few."""
    found: list[float] = []
    for parts in ((1.0,), (1.0, 1.5), (1.0, 1.25, 1.5, 1.75)):
        doublings = range(int(np.floor(np.log2(low))), int(np.ceil(np.log2(high))) + 1)
        found = [part * 2.0**power for power in doublings for part in parts if low <= part * 2.0**power <= high]
        if len(found) >= 4:
            break
    return found
