"""A sentence's lattice as a picture: the likeliest nodes of each column, the edges among them, the path that won.

Pictures are written as SVG and as Graphviz source, by hand: neither needs a package. Knows no model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from torch import Tensor

from longstride.contract import OptionError
from longstride.systems.lattice.search import best_through
from longstride.systems.lattice.window import Lattice

FAINT = 0.02
"""Edges of less probability are not drawn."""


@dataclass(frozen=True)
class Node:
    """A word that may stand in a column, or EOS."""

    label: str
    token: int
    behind: float
    """how much worse than the best path the best path through here is; 0 on the best path itself"""
    chosen: bool


@dataclass(frozen=True)
class Edge:
    """From a node of one column to a node of the next."""

    column: int
    start: int
    end: int
    score: float
    """log-probability"""
    chosen: bool


@dataclass(frozen=True)
class Picture:
    """What there is to see of one sentence."""

    title: str
    score: float
    """log-probability of the best path"""
    columns: tuple[tuple[Node, ...], ...]
    """the likeliest nodes, best first"""
    edges: tuple[Edge, ...]
    first: tuple[float, ...]
    """log-probabilities of the nodes of column 0"""


def draw(lattice: Lattice, row: int, path: Tensor, label: Callable[[int], str], most: int, title: str = "") -> Picture:
    """The picture of one row, with the `most` likeliest nodes of each column; path [columns] is the best one."""
    if lattice.triples is not None:
        raise OptionError("A picture expects a lattice of order 2, found one of order 3.")
    first, edges = lattice.first[row : row + 1].double(), lattice.edges[row : row + 1].double()
    through = best_through(first, edges)[0]
    best = float(through[0].max())
    ids, chosen, scores = lattice.ids[row].tolist(), path.tolist(), edges[0].tolist()
    kept: list[list[int]] = []
    for column, behind in enumerate(through.tolist()):
        order = sorted(range(len(behind)), key=lambda state: (-behind[state], state != chosen[column]))
        ends = len(behind) - 1  # the last state is PAD, of sentences that have ended
        shown = [state for state in order if behind[state] > -math.inf and state != ends][:most]
        if not shown:
            break
        kept.append(shown)
    columns = tuple(
        tuple(
            Node(label(token), token, best - float(through[column, state]), chosen[column] == state)
            for state, token in ((state, ids[column][state]) for state in shown)
        )
        for column, shown in enumerate(kept)
    )
    found = tuple(
        Edge(column, start, end, scores[column][a][b], chosen[column] == a and chosen[column + 1] == b)
        for column in range(len(kept) - 1)
        for start, a in enumerate(kept[column])
        for end, b in enumerate(kept[column + 1])
        if scores[column][a][b] > -math.inf
    )
    return Picture(title, best, columns, found, tuple(first[0, kept[0]].tolist()))


# --- SVG -------------------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _GAP, _TOP, _SIDE = 104, 34, 58, 64, 24
_STEP = _HEIGHT + 12
_PER_LINE = 10
"""Columns side by side"""
_STYLE = (
    "text{font-family:Helvetica,Arial,sans-serif;fill:#1f2933}.w{font-size:13px}.s{font-size:9px;fill:#52606d}"
    ".c{font-size:10px;fill:#7b8794}.t{font-size:15px;font-weight:bold}"
)


def as_svg(picture: Picture) -> str:
    """A stand-alone SVG: columns from left to right, edges as dark as they are likely, the best path in blue.

    Long sentences go on below; the last column of a line is the first of the next, so that no edge is lost.
    """
    lines = _lines(len(picture.columns))
    width = 2 * _SIDE + max(len(line) for line in lines) * (_WIDTH + _GAP) - _GAP
    parts = [
        f'<text class="t" x="{_SIDE}" y="24">{escape(picture.title)}</text>',
        f'<text class="c" x="{_SIDE}" y="40">log-probability of the best path {picture.score:.2f}; '
        "below each word: how far behind the best path through it is</text>",
    ]
    top = _TOP
    for line in lines:
        inside = [edge for edge in picture.edges if edge.column in line and edge.column + 1 in line]
        inside.sort(key=lambda edge: (edge.chosen, edge.score))
        parts += [_svg_edge(_left(edge.column - line.start) + _WIDTH, top, edge) for edge in inside]
        for column in line:
            x = _left(column - line.start)
            parts.append(f'<text class="c" x="{x + _WIDTH / 2}" y="{top - 6}" text-anchor="middle">{column + 1}</text>')
            nodes = picture.columns[column]
            parts += [_svg_node(x, _middle(top, place), node) for place, node in enumerate(nodes)]
        top += max(len(picture.columns[column]) for column in line) * _STEP + 2 * _SIDE
    height = top - _SIDE
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    return "\n".join([*head, *filter(None, parts), "</svg>", ""])


def _lines(columns: int) -> list[range]:
    """Columns line by line, the last of a line once more at the head of the next."""
    starts = range(0, max(1, columns - 1), _PER_LINE - 1)
    return [range(start, min(columns, start + _PER_LINE)) for start in starts]


def _left(place: int) -> int:
    return _SIDE + place * (_WIDTH + _GAP)


def _middle(top: int, place: int) -> float:
    return top + place * _STEP + _HEIGHT / 2


def _svg_node(x: int, middle: float, node: Node) -> str:
    y = middle - _HEIGHT / 2
    fill, line = ("#d6e6ff", "#1d5fd1") if node.chosen else ("#f5f7fa", "#cbd2d9")
    label = node.label if len(node.label) <= 13 else node.label[:12] + "…"
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="{fill}" stroke="{line}"/>'
        f'<text class="w" x="{x + _WIDTH / 2}" y="{y + 15}" text-anchor="middle">{escape(label)}</text>'
        f'<text class="s" x="{x + _WIDTH / 2}" y="{y + 28}" text-anchor="middle">{_behind(node)}</text>'
    )


def _svg_edge(x: int, top: int, edge: Edge) -> str:
    likely = min(1.0, math.exp(edge.score))
    if likely < FAINT and not edge.chosen:
        return ""
    start, end = _middle(top, edge.start), _middle(top, edge.end)
    color, opacity, width = ("#1d5fd1", 1.0, 2.5) if edge.chosen else ("#52606d", 0.15 + 0.85 * likely, 1.2)
    bend = _GAP / 2
    return (
        f'<path d="M{x} {start} C{x + bend} {start} {x + bend} {end} {x + _GAP} {end}" fill="none" stroke="{color}" '
        f'stroke-opacity="{opacity:.2f}" stroke-width="{width}"><title>{edge.score:.2f}</title></path>'
    )


def _behind(node: Node) -> str:
    return "best path" if node.chosen else f"−{node.behind:.2f}"


# --- Graphviz --------------------------------------------------------------------------------------------------------


def as_dot(picture: Picture) -> str:
    """Graphviz source, for `dot -Tpdf` and the like."""
    lines = [
        "digraph lattice {",
        "  rankdir=LR;",
        f"  label={_quoted(picture.title)};",
        "  labelloc=t;",
        '  node [shape=box, style="rounded,filled", fillcolor="#f5f7fa", color="#cbd2d9", fontname="Helvetica"];',
        '  edge [arrowsize=0.5, color="#52606d", fontsize=9];',
        f"  start [label={_quoted('<s>')}, shape=plaintext, style=solid];",
    ]
    for column, nodes in enumerate(picture.columns):
        for place, node in enumerate(nodes):
            mark = ', fillcolor="#d6e6ff", color="#1d5fd1"' if node.chosen else ""
            lines.append(f"  n{column}_{place} [label={_quoted(node.label + chr(10) + _behind(node))}{mark}];")
        same = "; ".join(f"n{column}_{place}" for place in range(len(nodes)))
        lines.append(f"  {{ rank=same; {same} }}")
    lines += [
        f"  start -> n0_{place} [label={_quoted(f'{score:.2f}')}{_bold(node.chosen)}];"
        for place, (score, node) in enumerate(zip(picture.first, picture.columns[0], strict=True))
    ]
    lines += [
        f"  n{edge.column}_{edge.start} -> n{edge.column + 1}_{edge.end} "
        f"[label={_quoted(f'{edge.score:.2f}')}{_bold(edge.chosen)}];"
        for edge in picture.edges
        if edge.chosen or math.exp(edge.score) >= FAINT
    ]
    return "\n".join([*lines, "}", ""])


def _bold(chosen: bool) -> str:
    return ', color="#1d5fd1", penwidth=2.5' if chosen else ""


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
