"""Contrastive pairs: does a model hold the reference to be more probable than the same sentence with one error in it?

Files are in the format of LingEval97 (Sennrich, 2017): a JSON list of entries with

    source      the source sentence
    reference   its translation
    errors      a list of: contrastive  the reference with an error put in
                           type         what kind of error (default: other)
                           distance     words between the two that it is about, say subject and verb (may be missing)

Whatever else is there (origin, frequency) is passed over. A pair is right if the log-probability of the reference, end
of sentence included and not divided by its length, is higher than that of the contrastive sentence; equal is wrong.
Knows no model.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longstride.contract import InputError
from longstride.text.corpus import read_lines
from longstride.text.files import parse_json

_Path = str | os.PathLike[str]

FAR = 15
"""Distances beyond this are told together, as LingEval97's own script does."""


@dataclass(frozen=True)
class Error:
    """A translation with one error in it."""

    contrastive: str
    type: str = "other"
    distance: int | None = None


@dataclass(frozen=True)
class Entry:
    """A sentence, its translation, and wrong ones."""

    source: str
    reference: str
    errors: tuple[Error, ...]


@dataclass(frozen=True)
class Cell:
    """Pairs of one type and distance, and how many of them a model got right."""

    type: str
    distance: int | None
    pairs: int
    right: int


@dataclass(frozen=True)
class Accuracy:
    """Of some pairs, by name."""

    name: str
    pairs: int
    right: int

    @property
    def percent(self) -> float:
        """From 0 to 100."""
        return 100.0 * self.right / self.pairs


def read_contrastive(path: _Path) -> list[Entry]:
    """Read a file of contrastive pairs, plain or compressed; errors name the entry, counted from 1."""
    try:
        found = parse_json("\n".join(read_lines(path)))
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}, line {error.lineno}: expected JSON, found something else ({error.msg} at column {error.colno})."
        ) from None
    except ValueError as error:
        raise InputError(f"{path}: expected JSON, found {error}.") from None
    if not isinstance(found, list):
        raise InputError(f"{path}: expected a JSON list of entries, found {_kind(found)}.")
    entries = [_entry(one, f"{path}, entry {number}") for number, one in enumerate(found, start=1)]
    if not any(entry.errors for entry in entries):
        raise InputError(f"{path}: expected at least one contrastive pair, found none.")
    return entries


def pairs_of(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """What is to be scored: every entry's source with its reference, then with each of its wrong translations."""
    return [
        (entry.source, target)
        for entry in entries
        for target in (entry.reference, *(error.contrastive for error in entry.errors))
    ]


def contrast(entries: Sequence[Entry], totals: NDArray[np.float64]) -> tuple[Cell, ...]:
    """Count what is right, given the log-probabilities [pairs] of :func:`pairs_of`."""
    pairs, right = Counter[tuple[str, int | None]](), Counter[tuple[str, int | None]]()
    place = 0
    for entry in entries:
        for number, error in enumerate(entry.errors, start=1):
            key = (error.type, error.distance)
            pairs[key] += 1
            right[key] += bool(totals[place] > totals[place + number])
        place += 1 + len(entry.errors)
    keys = sorted(pairs, key=lambda key: (key[0], key[1] is None, key[1] or 0))
    return tuple(Cell(*key, pairs[key], right[key]) for key in keys)


def accuracy(cells: Iterable[Cell], name: str = "all") -> Accuracy:
    """Over all of these cells, of which there must be one."""
    cells = list(cells)
    return Accuracy(name, sum(cell.pairs for cell in cells), sum(cell.right for cell in cells))


def by_type(cells: Sequence[Cell]) -> list[Accuracy]:
    """One for every type of error, in alphabetical order."""
    return [accuracy((cell for cell in cells if cell.type == name), name) for name in sorted({c.type for c in cells})]


def by_distance(cells: Sequence[Cell]) -> list[Accuracy]:
    """One for every distance up to FAR, one for all beyond; pairs without a distance are left out."""
    known = [(cell, cell.distance) for cell in cells if cell.distance is not None]
    near = sorted({distance for _, distance in known if distance <= FAR})
    found = [accuracy((cell for cell, at in known if at == distance), str(distance)) for distance in near]
    beyond = [cell for cell, distance in known if distance > FAR]
    return [*found, accuracy(beyond, f">{FAR}")] if beyond else found


def _entry(found: Any, where: str) -> Entry:
    if not isinstance(found, dict):
        raise InputError(f"{where}: expected an object with source, reference and errors, found {_kind(found)}.")
    errors = found.get("errors")
    if not isinstance(errors, list):
        raise InputError(f"{where}: expected 'errors' as a list, found {_kind(errors)}.")
    read = tuple(_error(one, f"{where}, error {number}") for number, one in enumerate(errors, start=1))
    return Entry(_text(found, "source", where), _text(found, "reference", where), read)


def _error(found: Any, where: str) -> Error:
    if not isinstance(found, dict):
        raise InputError(f"{where}: expected an object with contrastive, type and distance, found {_kind(found)}.")
    kind = _text(found, "type", where) if "type" in found else "other"
    distance = found.get("distance")
    if isinstance(distance, str) and distance.isdecimal() and len(distance) < 10:  # some of LingEval97's zeros are text
        distance = int(distance)
    if distance is not None and (not isinstance(distance, int) or isinstance(distance, bool) or distance < 0):
        raise InputError(f"{where}: expected 'distance' as a number of words, found {distance!r}.")
    return Error(_text(found, "contrastive", where), kind, distance)


def _text(found: dict[str, Any], name: str, where: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: expected {name!r} as text, found {_kind(value)}.")
    return value


def _kind(value: Any) -> str:
    """A JSON value as a person calls it."""
    if isinstance(value, str) and not value.strip():
        return "nothing but white space"
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number")
