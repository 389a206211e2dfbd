"""Plain charts: lines with points in one or more panels side by side. Knows no records; whoever has some makes lines.

Like the figures of a race, each carries a hash of all that it shows, so that it can be told whether it is up to date.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from longstride.bench import drawing
from longstride.bench.plots import marker

STYLE = 1
"""raised when charts should be drawn anew though their data are the same"""

WIDTH = 8.6
MOST_TICKS = 12


@dataclass(frozen=True)
class Line:
    """Points joined by a line, its name beside its end."""

    name: str
    points: tuple[tuple[float, float], ...]
    baseline: bool = False
    """what others are compared with: grey and dashed"""
    family: str = ""
    """lines of one family have one colour, the second and later ones are dashed"""


@dataclass(frozen=True)
class Panel:
    """Lines over two axes."""

    x: str
    y: str
    lines: tuple[Line, ...]
    scale: Literal["linear", "whole", "doubling"] = "linear"
    """of the horizontal axis; whole and doubling mark just the places that have points"""


@dataclass(frozen=True)
class Chart:
    """A figure."""

    name: str
    title: str
    """also what stands for the figure where it cannot be seen"""
    told: str
    """the line that no figure should be without: data, device, precision"""
    panels: tuple[Panel, ...]
    height: float = 4.4

    @property
    def digest(self) -> str:
        """SHA-256 over all that the chart is drawn from."""
        shown = json.dumps([STYLE, _rounded(asdict(self))], ensure_ascii=True)
        return hashlib.sha256(shown.encode()).hexdigest()

    def svg(self) -> bytes:
        """The chart as SVG, its digest in a comment."""
        drawn = drawing.rendered(self.draw, (WIDTH, self.height), "svg").decode()
        start = drawn.index("<svg")
        return (drawn[:start] + marker(self.digest) + "\n" + drawn[start:]).encode()

    def draw(self, figure: Any) -> None:
        """All panels, side by side."""
        found = figure.subplots(1, len(self.panels), squeeze=False)[0]
        for number, (axes, panel) in enumerate(zip(found, self.panels, strict=True)):
            _draw(axes, panel)
            if number == 0:
                axes.set_title(self.title)
                drawing.subtitle(axes, self.told)


def _draw(axes: Any, panel: Panel) -> None:
    colours = _colours(panel.lines)
    ends = []
    seen: set[str] = set()
    for line in panel.lines:
        xs, ys = [x for x, _ in line.points], [y for _, y in line.points]
        again = bool(line.family) and line.family in seen
        seen.add(line.family)
        style = "--" if line.baseline or again else "-"
        axes.plot(xs, ys, style, color=colours[line.name], linewidth=1.8, marker="o", markersize=3.6, clip_on=False)
        ends.append((ys[-1], line.name, colours[line.name]))
    places = sorted({x for line in panel.lines for x, _ in line.points})
    if panel.scale == "doubling":
        axes.set_xscale("log", base=2)
    if panel.scale != "linear" and len(places) <= MOST_TICKS:
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
    axes.set_xlim(right=places[-1])
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    drawing.spread_labels(axes, places[-1], ends)


def _colours(lines: Sequence[Line]) -> dict[str, str]:
    """A colour per family, or per line; baselines are grey."""
    found: dict[str, str] = {}
    families: dict[str, str] = {}
    for line in lines:
        if line.baseline:
            found[line.name] = drawing.MIDDLE
            continue
        key = line.family or line.name
        families.setdefault(key, drawing.COLOURS[len(families) % len(drawing.COLOURS)])
        found[line.name] = families[key]
    return found


def _rounded(value: Any) -> Any:
    """The last digits of a sum may differ between machines."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value
