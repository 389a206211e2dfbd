"""Plain charts: lines with points in one or more panels side by side. Knows lines, not records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from longstride.bench.figure import MIDDLE, Picture, colours_by

MOST_TICKS = 12


@dataclass(frozen=True)
class Line:
    """Points joined by a line."""

    name: str
    points: tuple[tuple[float, float], ...]
    baseline: bool = False
    """What others are compared with is grey and dashed."""
    family: str = ""
    """Lines of one family have one colour; the second and later ones are dashed."""


@dataclass(frozen=True)
class Panel:
    """Lines over two axes."""

    x: str
    y: str
    lines: tuple[Line, ...]
    scale: str = "linear"
    """Of the horizontal axis: linear, or whole and doubling, which mark just the places that have points."""


@dataclass(frozen=True)
class Chart(Picture):
    """A figure of lines."""

    name: str
    title: str
    told: str
    panels: tuple[Panel, ...]
    height: float = 4.4

    @property
    def shown(self) -> Any:
        """The panels."""
        return [asdict(panel) for panel in self.panels]

    def draw(self, figure: Any) -> None:
        """All panels, side by side, with one legend for lines of the same names."""
        every = figure.subplots(1, len(self.panels), squeeze=False)[0]
        for axes, panel in zip(every, self.panels, strict=True):
            _draw(axes, panel)
        # In the order in which the lines of the first panel end, from above.
        ends = {line.name: line.points[-1][1] for line in self.panels[0].lines}
        named = dict(zip(*every[0].get_legend_handles_labels()[::-1], strict=True))
        order = sorted(named, key=lambda name: -ends[name])
        figure.legend([named[name] for name in order], order, loc="outside right upper")


def _draw(axes: Any, panel: Panel) -> None:
    colours = colours_by([line.family or line.name for line in panel.lines if not line.baseline])
    seen: set[str] = set()
    for line in panel.lines:
        family = line.family or line.name
        style = "--" if line.baseline or family in seen else "-"
        colour = MIDDLE if line.baseline else colours[family]
        axes.plot(*zip(*line.points, strict=True), style, color=colour, label=line.name, marker="o", markersize=3.6)
        seen.add(family)
    places = sorted({x for line in panel.lines for x, _ in line.points})
    if panel.scale == "doubling":
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    if panel.scale != "linear" and len(places) <= MOST_TICKS:
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
    axes.set(xlabel=panel.x, ylabel=panel.y)
