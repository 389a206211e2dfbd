"""Records seen as named fields, and the small language in which the files in pages/ speak of them.

A template names fields in braces, with a format: ``{bleu:.2f} / {mean_block:.2f}``. A format may begin with a sum to do
first (``/1000 .2f``) and with a minus sign for typographic minus signs (``−+.2f``); ``{size:all}`` lists all values
that a table has of a field. Where a field has no value, what is made of it has none either.

A condition maps fields to what they must be: a value, a list to be among, or a test (``{above = 1}``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from longstride.bench.records import Record

Condition = Mapping[str, Any]
Field = Callable[["View"], Any]

FIELDS: dict[str, Field] = {}
"""Fields that are computed, by name; :mod:`longstride.bench.fields` fills this. Others are attributes of the record."""


def computed(function: Field) -> Field:
    """Make a function a field of its own name."""
    FIELDS[function.__name__] = function
    return function


_PLACE = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")
_SUM = re.compile(r"([/*-])([\d.e]+) (.*)")


class MissingValueError(Exception):
    """A template needs a field that has no value here."""


@dataclass
class Scope:
    """What one table is made from: the records of one experiment and test set, and what of them is shown."""

    group: Sequence[View] = ()
    records: Sequence[Record] = ()
    """of all experiments"""
    found: Sequence[View] = ()
    """those of the group that the table keeps, as far as it has chosen"""
    rows: Sequence[Row] = ()
    """the same by the row that they stand in"""
    lists: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """what a column can be repeated for besides the values of a field"""
    papers: Mapping[str, Paper] = field(default_factory=dict)


@dataclass(frozen=True)
class Paper:
    """Figures of a paper's table."""

    fields: tuple[str, ...]
    keys: int
    """how many of the fields, the first, tell rows apart"""
    rows: tuple[tuple[Any, ...], ...]

    def place(self, view: View) -> int | None:
        """Which row is about the same as a view."""
        wanted = tuple(view[name] for name in self.fields[: self.keys])
        return next((place for place, row in enumerate(self.rows) if row[: self.keys] == wanted), None)

    def beside(self, view: View) -> View | None:
        """That row."""
        place = self.place(view)
        return (
            None if place is None else View(None, view.scope, **dict(zip(self.fields, self.rows[place], strict=True)))
        )


class View:
    """One record, or nothing but `extras`, as named fields."""

    def __init__(self, record: Any, scope: Scope, **extras: Any) -> None:
        self.record, self.scope, self.extras = record, scope, extras
        self._known: dict[str, Any] = {}

    def beside(self, **extras: Any) -> View:
        """The same with more fields."""
        return View(self.record, self.scope, **{**self.extras, **extras})

    def __getitem__(self, name: str) -> Any:
        """The value of a field, dots leading into it; none where there is none."""
        first, *path = name.split(".")
        if first not in self._known:
            self._known[first] = self._field(first)
        value = self._known[first]
        for step in path:
            inside = isinstance(value, View)
            value = (
                value[step] if inside else value.get(step) if isinstance(value, Mapping) else getattr(value, step, None)
            )
        return value

    def _field(self, name: str) -> Any:
        if name in self.extras:
            return self.extras[name]
        if self.record is None:
            return None
        return FIELDS[name](self) if name in FIELDS else getattr(self.record, name, None)

    def meets(self, condition: Condition) -> bool:
        """Whether all its fields are as they must be."""
        return all(_is(self[name], wanted, self) for name, wanted in condition.items())

    def told(self, template: str) -> str | None:
        """The template with its fields in it; none where one of them has no value."""
        try:
            return _PLACE.sub(self._filled, template)
        except MissingValueError:
            return None

    def _filled(self, match: re.Match[str]) -> str:
        name, form = match[1], match[2] or ""
        if form == "all":
            return ", ".join(str(value) for value in sorted({view[name] for view in self.scope.found}))
        value = self[name]
        if value is None:
            raise MissingValueError(name)
        if found := _SUM.fullmatch(form):
            number = float(found[2])
            value = {"/": value / number, "*": value * number, "-": value - number}[found[1]]
            form = found[3]
        text = format(value, form.removeprefix("−"))
        return text.replace("-", "−") if form.startswith("−") else text


class Row(list[View]):
    """The views of a row of a table, each with the whole row as a field, and what they share."""

    def __init__(self, key: Mapping[str, Any], views: Iterable[View]) -> None:
        super().__init__(view.beside(row=self) for view in views)
        self.key = key


def _is(value: Any, wanted: Any, view: View) -> bool:
    if isinstance(wanted, Mapping):
        return all(_TESTS[name](value, other, view) for name, other in wanted.items())
    return bool(value in wanted if isinstance(wanted, list | tuple) else value == wanted)


_TESTS: dict[str, Callable[[Any, Any, View], bool]] = {
    "above": lambda value, other, view: value is not None and value > other,
    "most": lambda value, other, view: value is not None and value <= other,
    "not": lambda value, other, view: bool(value != other),
    "same_as": lambda value, other, view: bool(value == view[other]),
    "paper": lambda value, other, view: view.scope.papers[other].place(view) is not None,
    "known": lambda value, other, view: (value is not None) is other,
}
