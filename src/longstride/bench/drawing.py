"""How figures look: one clean style, colours that colour-blind readers can tell apart, labels beside what they name.

Knows matplotlib and nothing of records. Matplotlib is an extra and is imported only when something is drawn.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from longstride.bench import crowds
from longstride.contract import UsageError

INK = "#24292f"
FAINT = "#d0d7de"
MIDDLE = "#6e7781"

COLOURS = ("#0072B2", "#CC4C00", "#00855F", "#B3478A", "#B37400", "#2E8BC0", "#6A4FA3", "#6B4F1D")
"""after Okabe and Ito, darkened until text in them can be read on white"""

_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 26,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.edgecolor": MIDDLE,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MIDDLE,
    "ytick.color": MIDDLE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "longstride",
    "svg.fonttype": "path",
}

_BEHIND_LABELS = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}
"""so that lines do not cut through letters"""

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_HASHED = re.compile(r"\b[A-Za-z][0-9a-f]{10}\b")
"""matplotlib's names for parts of an SVG: hashes of their coordinates, last digits included"""

LAST_DIGITS = 0.01
"""points, of which an inch has 72: machines may differ by so much in where they put the same thing"""

Draw = Callable[[Any], None]
"""Draws on a matplotlib figure."""


def rendered(draw: Draw, size: tuple[float, float], form: str = "svg", dots: int = 160) -> bytes:
    """A figure of `size` inches as the bytes of a file; the same drawing gives the same bytes."""
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError(
            "Plots need matplotlib, found none; install it with: pip install 'longstride[plots]'."
        ) from None
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        buffer = io.BytesIO()
        # A date or a version in the file would make every rendering differ from the last.
        metadata = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
        figure.savefig(buffer, format=form, dpi=dots, metadata=metadata)
    return buffer.getvalue()


def alike(one: str, other: str) -> bool:
    """Whether two SVGs show the same: all their words are equal, and their numbers but for the last digits."""
    first, second = _HASHED.sub("", one), _HASHED.sub("", other)
    if first == second:
        return True
    if _NUMBER.split(first) != _NUMBER.split(second):
        return False
    pairs = zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True)
    return all(ours == theirs or abs(float(ours) - float(theirs)) <= LAST_DIGITS for ours, theirs in pairs)


def subtitle(axes: Any, text: str) -> None:
    """A quiet line between title and plot."""
    axes.annotate(
        text,
        (0, 1),
        (0, 8),
        xycoords="axes fraction",
        textcoords="offset points",
        color=MIDDLE,
        fontsize=9,
        va="bottom",
    )


def titles_over_labels(axes: Any, title: str, text: str) -> None:
    """Title and subtitle from the figure's left edge on, for plots whose labels leave them too little room."""
    made = axes.set_title(title)
    left = ("figure fraction", "axes fraction")
    for line, up, size, weight, colour in (
        (title, 22, made.get_fontsize(), made.get_fontweight(), made.get_color()),
        (text, 8, 9, "normal", MIDDLE),
    ):
        axes.annotate(
            line, (0.01, 1), (0, up), xycoords=left, textcoords="offset points",
            color=colour, fontsize=size, fontweight=weight, va="bottom", in_layout=False,
        )  # fmt: skip
    made.set_alpha(0)  # it keeps the room


def times(value: float, _place: object = None) -> str:
    """A ratio as people write it: 0.5×, 2×, 16×."""
    return f"{value:g}×"


def label_points(
    axes: Any, points: Sequence[tuple[float, float, str, str]], bars: Sequence[tuple[float, float, float]] = ()
) -> None:
    """Write (x, y, text, colour) beside its point where it covers no point, no other label and no bar (x, x, y)."""
    figure = axes.figure
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    unit = figure.dpi / 72
    pixels = [axes.transData.transform((x, y)) for x, y, _, _ in points]
    taken = [(px - 5 * unit, py - 5 * unit, px + 5 * unit, py + 5 * unit) for px, py in pixels]
    for left, right, y in bars:
        (x0, height), (x1, _) = axes.transData.transform([(left, y), (right, y)])
        taken.append((x0, height - unit, x1, height + unit))
    frame = axes.get_window_extent(renderer)
    inside = (frame.x0 + 2 * unit, frame.y0 + 2 * unit, frame.x1, frame.y1)
    for (x, y, text, colour), (px, py) in zip(points, pixels, strict=True):
        shown = axes.annotate(text, (x, y), fontsize=9, color=colour)
        extent = shown.get_window_extent(renderer)
        shown.remove()
        # The first of the places that cover least; the places come with the most readable first.
        boxes = [
            (_box(px, py, offset, extent, unit), offset)
            for offset in _places(extent.width / unit, extent.height / unit)
        ]
        costs = [_cost(box, taken, inside) for box, _ in boxes]
        _, best = boxes[costs.index(min(costs))]
        box = _box(px, py, best, extent, unit)
        taken.append(box)
        # From the near edge of the label to the point, where the two are apart.
        far = max(box[0] - px, px - box[2], 0) + max(box[1] - py, py - box[3], 0) > 12 * unit
        arrow = (
            {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "alpha": 0.5, "shrinkA": 0, "shrinkB": 4}
            if far
            else None
        )
        axes.annotate(
            text,
            (x, y),
            best,
            textcoords="offset points",
            fontsize=9,
            color=colour,
            va="bottom",
            arrowprops=arrow,
            bbox=_BEHIND_LABELS,
        )


DOT = 4.0
"""half the width in points of what a short label keeps clear of around its point"""


def number_points(
    axes: Any,
    points: Sequence[tuple[float, float, str, str]],
    bars: Sequence[tuple[float, float, float]] = (),
    levels: Sequence[float] = (),
) -> None:
    """Write short labels (x, y, text, colour) near many points, covering no point, no other label and no bar (x, x, y).

    Lines across the plot at `levels` are covered only where there is no room elsewhere.
    """
    figure = axes.figure
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    unit = figure.dpi / 72

    def in_points(x: float, y: float) -> tuple[float, float]:
        px, py = axes.transData.transform((x, y))
        return px / unit, py / unit

    sizes = []
    for x, y, text, colour in points:
        shown = axes.annotate(text, (x, y), fontsize=9, fontweight="bold", color=colour)
        extent = shown.get_window_extent(renderer)
        shown.remove()
        sizes.append((extent.width / unit + 2, extent.height / unit))
    window = axes.get_window_extent(renderer)
    frame = (window.x0 / unit + 2, window.y0 / unit + 2, window.x1 / unit, window.y1 / unit)
    places = [in_points(x, y) for x, y, *_ in points]
    taken = []
    for left, right, y in bars:
        (x0, height), (x1, _) = in_points(left, y), in_points(right, y)
        taken.append((x0, height - 1, x1, height + 1))
    lines = []
    for y in levels:
        height = in_points(points[0][0], y)[1]
        lines.append((frame[0], height - 1, frame[2], height + 1))
    boxes = crowds.labels_beside(places, sizes, DOT, frame, taken, lines)
    for (x, y, text, colour), place, box in zip(points, places, boxes, strict=True):
        if crowds.gap_between(place, box) > crowds.THREAD:
            end = crowds.nearest(place, box)
            axes.annotate(
                "", (x, y), (end[0] - place[0], end[1] - place[1]), textcoords="offset points", zorder=2,
                arrowprops={
                    "arrowstyle": "-", "color": colour, "linewidth": 0.8, "alpha": 0.7, "shrinkA": 0, "shrinkB": 2
                },
            )  # fmt: skip
        middle = ((box[0] + box[2]) / 2 - place[0], (box[1] + box[3]) / 2 - place[1])
        axes.annotate(
            text, (x, y), middle, textcoords="offset points", fontsize=9, fontweight="bold", color=colour,
            ha="center", va="center", bbox={**_BEHIND_LABELS, "pad": 0}, zorder=5,
        )  # fmt: skip


def name_list(axes: Any, entries: Sequence[tuple[str, str, str, bool]], columns: int) -> None:
    """Say what short labels stand for, column by column: (label, text, colour, whether the point is hollow)."""
    from matplotlib.transforms import offset_copy

    axes.set_axis_off()
    rows = math.ceil(len(entries) / columns)
    axes.set(xlim=(0, columns), ylim=(rows - 0.5, -0.5))
    beside = offset_copy(axes.transData, axes.figure, x=21, units="points")
    style: Any = {"textcoords": "offset points", "fontsize": 9, "va": "center", "in_layout": False}
    for place, (label, text, colour, hollow) in enumerate(entries):
        x, y = divmod(place, rows)
        axes.annotate(label, (x, y), (13, 0), fontweight="bold", color=colour, ha="right", **style)
        axes.annotate(text, (x, y), (29, 0), color=colour, **style)
        dot(axes, x, y, colour, hollow, size=6, transform=beside, clip_on=False)


def dot(axes: Any, x: float, y: float, colour: str, hollow: bool, size: float, **more: Any) -> None:
    """A point: round, or an empty square."""
    style: Any = {"markersize": size, "markerfacecolor": "white" if hollow else colour, "markeredgewidth": 1.6}
    axes.plot(x, y, "s" if hollow else "o", color=colour, **{"zorder": 3, **style, **more})


def _places(width: float, height: float) -> list[tuple[float, float]]:
    """Offsets in points of a label's lower left corner, the most readable first."""
    places: list[tuple[float, float]] = []
    for gap in (8.0, 14.0, 22.0, 32.0, 44.0):
        near = gap * 0.6
        places += [
            (gap, -height / 2),
            (-width - gap, -height / 2),
            (-width / 2, gap),
            (-width / 2, -height - gap),
            (near, near),
            (near, -height - near),
            (-width - near, near),
            (-width - near, -height - near),
        ]
    return places


Box = tuple[float, float, float, float]


def _box(px: float, py: float, offset: tuple[float, float], extent: Any, unit: float) -> Box:
    left, bottom = px + offset[0] * unit, py + offset[1] * unit
    return left, bottom, left + extent.width, bottom + extent.height


def _cost(box: Box, taken: Sequence[Box], inside: Box) -> float:
    covered = sum(
        max(0.0, min(box[2], other[2]) - max(box[0], other[0]))
        * max(0.0, min(box[3], other[3]) - max(box[1], other[1]))
        for other in taken
    )
    outside = max(0.0, inside[0] - box[0]) + max(0.0, box[2] - inside[2])
    outside += max(0.0, inside[1] - box[1]) + max(0.0, box[3] - inside[3])
    return round(covered + 1000 * outside, 3)


def spread_labels(axes: Any, x: float, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write (y, text, colour) to the right of `x`, moved apart so that none covers another, a thread to each."""
    figure = axes.figure
    figure.draw_without_rendering()
    unit = figure.dpi / 72
    gap = 12.5 * unit
    wanted = sorted((float(axes.transData.transform((x, y))[1]), y, text, colour) for y, text, colour in ends)
    heights = spread_apart([height for height, *_ in wanted], gap)
    for (height, y, text, colour), placed in zip(wanted, heights, strict=True):
        axes.annotate(
            text,
            (x, y),
            (22, (placed - height) / unit),
            textcoords="offset points",
            fontsize=9,
            color=colour,
            va="center",
            annotation_clip=False,
            # relpos: the thread ends at the middle of the label's left edge.
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "relpos": (0, 0.5), "shrinkA": 1},
        )


def spread_apart(heights: Sequence[float], gap: float) -> list[float]:
    """Sorted heights moved as little as need be so that neighbours are `gap` apart: clusters grow around their mean."""
    clusters: list[list[float]] = []  # each: wanted heights, laid out gap by gap around their mean
    for height in heights:
        clusters.append([height])
        while len(clusters) > 1 and _bottom(clusters[-1], gap) - _top(clusters[-2], gap) < gap:
            last = clusters.pop()
            clusters[-1] = clusters[-1] + last
    return [_bottom(cluster, gap) + gap * place for cluster in clusters for place in range(len(cluster))]


def _bottom(cluster: Sequence[float], gap: float) -> float:
    return sum(cluster) / len(cluster) - gap * (len(cluster) - 1) / 2


def _top(cluster: Sequence[float], gap: float) -> float:
    return sum(cluster) / len(cluster) + gap * (len(cluster) - 1) / 2
