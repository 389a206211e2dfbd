"""The one renderer of tables: a description from a file in pages/ and views of records become Markdown, and charts.

A table keeps some views of a group, puts them into rows, and has a cell per row and column: the column's template,
filled by the last view of the row that the column's conditions choose. What has nothing to show is left out.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from longstride.bench.figure import Picture
from longstride.bench.plots import Line, Panel
from longstride.bench.plots import chart as lines_chart
from longstride.bench.view import Condition, Row, Scope, View

NOTHING = "·"
"""Stands where a record does not say."""


@dataclass(frozen=True)
class _Repetition:
    """A value that columns or lines are repeated for."""

    values: Condition
    """What views must have to be shown in it."""
    extras: Mapping[str, Any]
    """Fields that they have in it."""
    view: View
    """One of them, for headings."""


@dataclass(frozen=True)
class ColumnSpec:
    """A column, or one for each of several values."""

    heading: str
    cell: str
    text: bool = False
    """Text stands to the left, numbers to the right."""
    where: tuple[dict[str, Any], ...] = ({},)
    """Which view of a row fills the cell: that of the first condition by which there is one that can."""
    paper: str = ""
    """The paper's table that fills the cell instead."""
    each: tuple[str, ...] = ()
    """Repeat for all values of these fields, or for a named list; neighbours that repeat alike take turns."""
    order: tuple[str, ...] | None = None
    varying: bool = False
    """Show only where rows differ."""
    otherwise: str = NOTHING


@dataclass(frozen=True)
class NoteSpec:
    """A sentence below the table, where some view is as it must be; perhaps one for each value of a field."""

    text: str
    where: dict[str, Any] = field(default_factory=dict)
    each: str = ""
    most: str = ""
    """Of each, the view that has the most of this field fills the sentence; those without are left out."""


@dataclass(frozen=True)
class PanelSpec:
    """The axes of a chart."""

    x: str
    y: str
    at: str
    """The field that says where a point stands."""
    scale: str = "linear"


@dataclass(frozen=True)
class LineSpec:
    """A line, or one for each of several values."""

    name: str
    value: str
    where: dict[str, Any] = field(default_factory=dict)
    each: tuple[str, ...] = ()
    order: tuple[str, ...] | None = None
    family: str = ""
    baseline: dict[str, Any] | None = None
    panel: int = 0


@dataclass(frozen=True)
class ChartSpec:
    """A chart of what the table shows."""

    name: str
    title: str
    told: str
    panels: tuple[PanelSpec, ...]
    lines: tuple[LineSpec, ...]


@dataclass(frozen=True)
class TableSpec:
    """What a table is made of, as a file in pages/ describes it."""

    name: str
    columns: tuple[ColumnSpec, ...]
    notes: tuple[NoteSpec, ...] = ()
    title: str = ""
    of: str = "quality"
    """Which groups of records it is made for."""
    expand: str = ""
    """How a record becomes several views."""
    given: tuple[dict[str, Any], ...] = ()
    """What some record of the group must be, each of these."""
    keep: tuple[dict[str, Any], ...] = ()
    """Which views are kept: those that meet the first, of these those that meet the second, and so on."""
    beside: dict[str, Any] = field(default_factory=dict)
    """Keep those that share the value of a `field` with one that meets `where`."""
    fullest: dict[str, str] = field(default_factory=dict)
    """Keep those with the one value `of` a field that has the most values `by` another."""
    best: tuple[str, ...] = ()
    """Keep those that come first in this order."""
    having: tuple[dict[str, Any], ...] = ()
    """What some view that is kept must be, each of these."""
    least: dict[str, int] = field(default_factory=dict)
    """How many values of a field, or of several together, there must be."""
    sort: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    """Views that agree in these fields share a row; without any, each has its own."""
    row_values: tuple[tuple[Any, ...], ...] = ()
    """The rows, where they are the same whatever there is."""
    lead: dict[str, Any] = field(default_factory=dict)
    """Only views that meet this make a row, fill cells without a condition, and count for notes and `least`."""
    require: tuple[dict[str, Any], ...] = ()
    """What a row must have, each of these."""
    order: tuple[str, ...] | None = None
    """Of rows: fields, falling after a minus, by appearance after ``seen:``, as in a paper after ``paper:``."""
    chart: ChartSpec | None = None


@dataclass(frozen=True)
class Column:
    """A heading and a cell per row; a column without anything to say is left out of a table."""

    heading: str
    cells: Sequence[str]
    numeric: bool = True

    @property
    def empty(self) -> bool:
        """Whether no row has anything to say."""
        return all(cell in ("", NOTHING) for cell in self.cells)


def markdown(columns: Sequence[Column]) -> str:
    """A Markdown table, padded so that its source is a table too."""
    shown = [column for column in columns if not column.empty]
    texts = [[_escaped(text) for text in (column.heading, *column.cells)] for column in shown]
    widths = [max(3, *(len(text) for text in column)) for column in texts]
    lines = []
    for row in range(len(texts[0])):
        cells = [
            column[row].rjust(width) if told.numeric else column[row].ljust(width)
            for told, column, width in zip(shown, texts, widths, strict=True)
        ]
        lines.append("| " + " | ".join(cells) + " |")
    rule = ["-" * (width - 1) + ":" if told.numeric else "-" * width for told, width in zip(shown, widths, strict=True)]
    lines.insert(1, "| " + " | ".join(rule) + " |")
    return "\n".join(lines) + "\n"


def comma_separated(text: str) -> str:
    """The table that a text begins with, as a file of comma-separated values; what stands below it, as a last row."""
    table, _, notes = text.partition("\n\n")
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    for number, line in enumerate(table.strip().splitlines()):
        if number != 1:  # the rule below the headings
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            writer.writerow(cell.strip().replace("\\|", "|") for cell in cells)
    if notes.strip():
        writer.writerow([" ".join(notes.split())])
    return file.getvalue()


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def render(spec: TableSpec, scope: Scope) -> str | None:
    """The table of a group of views, with its notes; none where there is nothing to show."""
    if not _choose(spec, scope):
        return None
    columns = [
        column
        for repeated, some in groupby(spec.columns, key=lambda one: (one.each, one.order))
        for column in _columns(list(some), *repeated, scope)
    ]
    notes = [text for note in spec.notes for text in _notes(note, scope) if text]
    return markdown(columns) + ("\n" + " ".join(notes) + "\n" if spec.notes else "")


def _choose(spec: TableSpec, scope: Scope) -> bool:
    """Fill the scope with the views and rows of the table; says whether it has any."""
    found = list(scope.group)
    if not all(any(view.meets(one) for view in found) for one in spec.given):
        return False
    for condition in spec.keep:
        scope.found = found
        found = [View(view.record, scope, **view.extras) for view in found if view.meets(condition)]
    scope.found = found
    if spec.beside:
        name, where = spec.beside["field"], spec.beside["where"]
        values = {view[name] for view in found if view.meets(where)}
        found = [view for view in found if view[name] in values]
    if spec.fullest and found:
        of, by = spec.fullest["of"], spec.fullest["by"]
        counts = {view[of]: len({one[by] for one in found if one[of] == view[of]}) for view in found}
        fullest = max(counts, key=lambda value: counts[value])
        found = [view for view in found if view[of] == fullest]
    if spec.best and found:
        key = _key(spec.best, scope)
        first = min(map(key, found))
        found = [view for view in found if key(view) == first]
    found.sort(key=_key(spec.sort, scope))
    scope.found = [view for view in found if view.meets(spec.lead)]
    _put_into_rows(spec, scope, found)
    return bool(scope.rows) and all(
        [any(view.meets(one) for view in scope.found) for one in spec.having]
        + [_variety(scope, names.split()) >= number for names, number in spec.least.items()]
    )


def _variety(scope: Scope, names: Sequence[str]) -> int:
    return len({tuple(view[name] for name in names) for view in scope.found})


def _put_into_rows(spec: TableSpec, scope: Scope, found: Sequence[View]) -> None:
    rows: dict[Any, list[View]] = {values: [] for values in spec.row_values}
    keys = [tuple(view[name] for name in spec.rows) if spec.rows else (number,) for number, view in enumerate(found)]
    for key, view in zip(keys, found, strict=True):
        if not spec.row_values and view.meets(spec.lead):
            rows.setdefault(key, [])
    # Those that lead come last: where a column has no condition, the last view fills the cell.
    for key, view in sorted(zip(keys, found, strict=True), key=lambda one: one[1].meets(spec.lead)):
        if key in rows:
            rows[key].append(view)
    rows = {key: row for key, row in rows.items() if all(any(view.meets(one) for view in row) for one in spec.require)}
    if not spec.row_values:
        by = _key(spec.rows if spec.order is None else spec.order, scope)
        rows = dict(sorted(rows.items(), key=lambda one: by(one[1][-1])))
        shown = {id(view) for row in rows.values() for view in row}
        scope.found = [view for view in scope.found if id(view) in shown]
    scope.rows = [Row(dict(zip(spec.rows, key, strict=False)), row) for key, row in rows.items()]


def _key(order: Sequence[str], scope: Scope) -> Callable[[View], Any]:
    """What to sort views by."""
    seen = {
        name: list(dict.fromkeys(view[name.removeprefix("seen:")] for view in scope.found))
        for name in order
        if name.startswith("seen:")
    }

    def value(view: View, name: str) -> Any:
        if name in seen:
            return seen[name].index(view[name.removeprefix("seen:")])
        if name.startswith("paper:"):
            return scope.papers[name.removeprefix("paper:")].place(view)
        return -view[name[1:]] if name.startswith("-") else view[name]

    return lambda view: tuple(value(view, name) for name in order)


def _repetitions(each: Sequence[str], order: Sequence[str] | None, scope: Scope) -> Iterator[_Repetition]:
    """What to repeat for; without fields, once."""
    if len(each) == 1 and each[0] in scope.lists:
        yield from (_Repetition({}, extras, scope.found[0].beside(**extras)) for extras in scope.lists[each[0]])
        return
    first: dict[tuple[Any, ...], View] = {}
    for view in scope.found:
        first.setdefault(tuple(view[name] for name in each), view)
    for view in sorted(first.values(), key=_key(each if order is None else order, scope)):
        values = {name: view[name] for name in each}
        yield _Repetition(values, values, view)


def _columns(
    specs: Sequence[ColumnSpec], each: Sequence[str], order: Sequence[str] | None, scope: Scope
) -> Iterator[Column]:
    for one in _repetitions(each, order, scope):
        for spec in specs:
            cells = [_cell(spec, row, one, scope) for row in scope.rows]
            if not spec.varying or len(set(cells)) > 1:
                yield Column(one.view.told(spec.heading) or "", cells, not spec.text)


def _cell(spec: ColumnSpec, row: Row, repeated: _Repetition, scope: Scope) -> str:
    own = [view for view in row if view.meets(repeated.values)]
    for condition in spec.where:
        chosen = [view for view in own if view.meets(condition)]
        view = (chosen[-1] if chosen else View(None, scope, **row.key)).beside(**repeated.extras)
        shown = scope.papers[spec.paper].beside(view) if spec.paper else view
        text = None if shown is None else shown.told(spec.cell)
        if text is not None:
            return text
    return spec.otherwise


def _notes(note: NoteSpec, scope: Scope) -> list[str]:
    found = [view for view in scope.found if view.meets(note.where)]
    if note.each:
        groups: dict[Any, list[View]] = {}
        for view in found:
            if not note.most or view[note.most] is not None:
                groups.setdefault(view[note.each], []).append(view)
        found = [max(some, key=lambda view: view[note.most]) if note.most else some[0] for some in groups.values()]
    return [view.told(note.text) or "" for view in (found if note.each else found[:1])]


def chart(spec: ChartSpec, scope: Scope, place: str) -> Picture:
    """The chart of what a table shows, once it is rendered."""
    lines: list[list[Line]] = [[] for _ in spec.panels]
    for line in spec.lines:
        for repeated in _repetitions(line.each, line.order, scope):
            view = repeated.view
            mine = [one for one in scope.found if one.meets({**repeated.values, **line.where})]
            points = {float(one[spec.panels[line.panel].at]): one[line.value] for one in mine}
            known = tuple(sorted((x, value) for x, value in points.items() if value is not None))
            if known:
                name, family = view.told(line.name) or "", view.told(line.family) or ""
                baseline = line.baseline is not None and view.meets(line.baseline)
                lines[line.panel].append(Line(name, known, baseline, family))
    panels = [
        Panel(panel.x, scope.found[0].told(panel.y) or "", tuple(some), panel.scale)
        for panel, some in zip(spec.panels, lines, strict=True)
        if some
    ]
    return lines_chart(f"{place}-{spec.name}", spec.title, scope.found[0].told(spec.told) or "", panels)
