"""A figure as a file: one clean style, the same bytes for the same drawing, and a hash of the data that it shows.

By the hash a check can tell whether a figure is up to date without drawing it: different versions of matplotlib give
different bytes for the same figure. Matplotlib is an extra and is imported only when something is drawn.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from longstride.contract import UsageError

INK = "#24292f"
FAINT = "#d0d7de"
MIDDLE = "#6e7781"

COLOURS = ("#0072B2", "#CC4C00", "#00855F", "#B3478A", "#B37400", "#2E8BC0", "#6A4FA3", "#6B4F1D")
"""Colours after Okabe and Ito, which colour-blind readers can tell apart."""

STYLE = 4
"""Raised when figures should be drawn anew though their data are the same."""

WIDTH = 8.6
TITLE = 56
"""Letters that a line of a title beside a legend may have."""
MARKER = "<!-- longstride data sha256:"

_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "figure.titlesize": 12,
    "figure.titleweight": "bold",
    "figure.labelsize": 9,
    "axes.labelcolor": INK,
    "axes.edgecolor": MIDDLE,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "text.color": INK,
    "xtick.color": MIDDLE,
    "ytick.color": MIDDLE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "svg.hashsalt": "longstride",
    "svg.fonttype": "path",
}

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_HASHED = re.compile(r"\b[A-Za-z][0-9a-f]{10}\b")
"""Matplotlib names parts of an SVG by hashes of their coordinates, last digits included."""

LAST_DIGITS = 0.01
"""Machines may differ by so many points (72 to an inch) in where they put the same thing."""


@dataclass(frozen=True)
class Picture:
    """One figure."""

    name: str
    title: str
    """Also stands for the figure where it cannot be seen."""
    told: str
    """The line that no figure should be without: data, device, precision."""
    height: float
    shown: Any
    """All data that the figure is drawn from, as JSON has it."""
    draw: Callable[[Any], None]
    """Draws on a matplotlib figure."""

    @property
    def digest(self) -> str:
        """SHA-256 over all that the figure is drawn from."""
        told = [STYLE, self.name, self.title, self.told, self.height, _rounded(self.shown)]
        return hashlib.sha256(json.dumps(told, ensure_ascii=True).encode()).hexdigest()

    def svg(self) -> str:
        """The figure as SVG, its digest in a comment; the same drawing gives the same text."""
        try:
            import matplotlib
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError:
            raise UsageError(
                "Plots need matplotlib, found none; install it with: pip install 'longstride[plots]'."
            ) from None
        with matplotlib.rc_context(_STYLE):
            figure = Figure(figsize=(WIDTH, self.height), layout="constrained")
            FigureCanvasAgg(figure)
            self.draw(figure)
            title = textwrap.fill(self.title, TITLE) if figure.legends else self.title
            figure.suptitle(title, x=0.01, ha="left")
            figure.supxlabel(self.told, x=0.01, ha="left", color=MIDDLE)
            buffer = io.StringIO()
            # A date or a version in the file would make every rendering differ from the last.
            figure.savefig(buffer, format="svg", dpi=160, metadata={"Date": None, "Creator": None})
        head, _, body = buffer.getvalue().partition("<svg")
        return f"{head}{marker(self.digest)}\n<svg{body}"


def marker(digest: str) -> str:
    """The comment by which a figure says what it was drawn from."""
    return f"{MARKER}{digest} -->"


def alike(one: str, other: str) -> bool:
    """Whether two SVGs show the same: all their words are equal, and their numbers but for the last digits."""
    first, second = _HASHED.sub("", one), _HASHED.sub("", other)
    if first == second:
        return True
    if _NUMBER.split(first) != _NUMBER.split(second):
        return False
    pairs = zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True)
    return all(ours == theirs or abs(float(ours) - float(theirs)) <= LAST_DIGITS for ours, theirs in pairs)


def _rounded(value: Any) -> Any:
    """The last digits of a sum may differ between machines."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value
