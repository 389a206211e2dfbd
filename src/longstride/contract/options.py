"""One parser of options: YAML, ``--set name=value``, Python keywords and signatures all end in a frozen dataclass.

A class of options is a frozen dataclass under :class:`Options` and declares each field with :func:`option`: its
sentence is the command line's help, and its range is what a number may be, however the class is made. Values may come
typed (YAML, Python) or as text (``--set``); both are checked against the field's annotation. An unknown name is an
error that lists the names there are. Nested dataclasses take nested mappings or dotted names (``model.width=256``).
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from longstride.contract.errors import OptionError
from longstride.contract.suggestions import meant

T = TypeVar("T")

_SURROGATE = re.compile("[\ud800-\udfff]")
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
_NONE = {"none", "null", ""}


DEEPEST = 16
"""Names with more dots than this name nothing."""


def option(
    default: Any = MISSING,
    help: str = "",
    *,
    factory: Any = MISSING,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """Declare a field of an options dataclass with its one-sentence help; without a default it is required.

    A number, or a tuple of numbers, has a range: from `least` or `above` on, to `most` or up to `below`.
    """
    metadata = {"help": help, "range": Range.of(least, most, above, below)}
    if factory is not MISSING:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    if default is MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Options:
    """What all dataclasses of options have in common: their numbers are in the ranges and their choices among those
    that they declare, whether they are parsed or made in Python.

    One with more to check does so in a ``__post_init__`` of its own, after this one's.
    """

    def __post_init__(self) -> None:
        _check(type(self), vars(self))


def parse(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build `cls` from typed or textual values; `where` says in errors whose options these are."""
    return typing.cast(T, _build(cls, merged({}, values), prefix="", where=where))


def assignments(texts: Sequence[str]) -> dict[str, str]:
    """Turn ``["width=5", "model.heads=4"]`` into a mapping, refusing what is not an assignment."""
    result: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise OptionError(f"--set expects name=value, found {text!r}.")
        result[name.strip()] = value.strip()
    return result


def merged(base: Mapping[str, Any], changes: Mapping[Any, Any]) -> dict[str, Any]:
    """Lay `changes` (dotted names allowed) over `base`, nested mapping by nested mapping."""
    result: dict[str, Any] = {key: dict(value) if isinstance(value, Mapping) else value for key, value in base.items()}
    for name, value in changes.items():
        head, dot, rest = name.partition(".") if isinstance(name, str) else (name, "", "")  # which parsing refuses
        if dot and name.count(".") <= DEEPEST:
            inner = result.get(head)
            result[head] = merged(inner if isinstance(inner, Mapping) else {}, {rest: value})
        elif isinstance(value, Mapping) and isinstance(result.get(head), Mapping):
            result[head] = merged(result[head], value)
        else:
            result[head] = value
    return result


def fields(cls: type) -> Iterator[tuple[str, str, str, str]]:
    """For help pages: name, type, default and sentence of each option, nested ones with dotted names."""
    hints = _hints(cls)
    for field in _own_first(cls):
        kind = hints[field.name]
        if dataclasses.is_dataclass(kind) and isinstance(kind, type) and not hasattr(kind, "from_text"):
            for name, inner, default, sentence in fields(kind):
                yield f"{field.name}.{name}", inner, default, sentence
        else:
            bounds = field.metadata.get("range")
            form = type_name(kind) if bounds is None else bounds.described(kind).removeprefix("a ")
            yield field.name, form, _default_text(field), field.metadata.get("help", "")


def as_dict(options: Any) -> dict[str, Any]:
    """The options as plain data (for config files and records), in field order; what has a text form is that text."""
    result: dict[str, Any] = {}
    for field in _own_first(options):
        value = getattr(options, field.name)
        if hasattr(value, "from_text"):
            value = str(value)
        elif dataclasses.is_dataclass(value):
            value = as_dict(value)
        elif isinstance(value, tuple):
            value = [as_dict(item) if dataclasses.is_dataclass(item) else item for item in value]
        result[field.name] = value
    return result


def _own_first(cls: Any) -> list[Field[Any]]:
    """The fields of a class of options, those that several classes share (by keyword alone) behind its own."""
    return sorted(dataclasses.fields(cls), key=lambda field: field.kw_only is True)


def type_name(kind: Any) -> str:
    """A type as a person writes it: ``int``, ``post|pre``, ``a list of int``."""
    origin = get_origin(kind)
    if origin is Literal:
        return "|".join(str(choice) for choice in get_args(kind))
    if origin in (Union, types.UnionType):
        return " or ".join("none" if arg is type(None) else type_name(arg) for arg in get_args(kind))
    if origin in (tuple, list):
        return f"a list of {type_name(get_args(kind)[0])}"
    if kind is str:
        return "text"
    return str(getattr(kind, "form", None) or getattr(kind, "__name__", str(kind)))


@cache
def _hints(cls: type) -> dict[str, Any]:
    """The types of a class's fields: Python compiles every annotation anew each time, half a millisecond for some."""
    return typing.get_type_hints(cls)


def _build(cls: type, values: Mapping[Any, Any], prefix: str, where: str) -> Any:
    hints = _hints(cls)
    known = {field.name: field for field in dataclasses.fields(cls)}
    for name in values:
        if not isinstance(name, str):
            told = f"{prefix.removesuffix('.')} expects" if prefix else "expected"
            raise OptionError(f"{_said(where)}{told} a name for an option, found {shown(name)}.")
        if name not in known:
            there = ", ".join(known) or "none"
            raise OptionError(
                f"{_said(where)}there is no option {prefix + name!r}{meant(name, known)}; the options are {there}."
            )
    arguments: dict[str, Any] = {}
    for name, field in known.items():
        if name in values:
            arguments[name] = _converted(field, hints[name], values[name], prefix + name, where)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise OptionError(f"{_said(where)}the option {prefix + name!r} ({type_name(hints[name])}) is required.")
    _check(cls, arguments, f"{_said(where)}{prefix}")
    try:
        return cls(**arguments)
    except OptionError as error:  # a dataclass checks its own values in __post_init__
        raise OptionError(f"{_said(where)}{error}") from None


@cache
def _declared(cls: type) -> tuple[tuple[str, Any, Range | None], ...]:
    """Name, type and range of the fields that are numbers with a range, or choices."""
    hints = _hints(cls)
    found = [(field.name, hints[field.name], field.metadata.get("range")) for field in dataclasses.fields(cls)]
    return tuple(one for one in found if one[2] is not None or get_origin(one[1]) is Literal)


def _check(cls: type, values: Mapping[str, Any], prefix: str = "") -> None:
    for name, kind, bounds in _declared(cls):
        if name not in values:
            continue
        value = values[name]
        if bounds is None and value not in get_args(kind):
            raise OptionError(f"{prefix}{name} expects {type_name(kind)}, found {shown(value)}.")
        if bounds is not None and not bounds.fits(kind, value):
            raise OptionError(f"{prefix}{name} expects {bounds.described(kind)}, found {shown(value)}.")


class _MisfitError(Exception):
    """What was expected, as text, and the value that was found."""


def _converted(field: Field[Any], kind: Any, value: Any, name: str, where: str) -> Any:
    bounds = field.metadata.get("range")
    try:
        return _convert(kind, value, name, where)
    except _MisfitError as misfit:
        told, (expected, found) = repr(name), misfit.args
    if bounds is not None:
        told, expected, found = name, bounds.described(kind), value
    raise OptionError(f"{_said(where)}{told} expects {expected}, found {shown(found)}.")


def _convert(kind: Any, value: Any, name: str, where: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if type(None) in inner and (value is None or (isinstance(value, str) and value.lower() in _NONE)):
            return None
        for arm in inner:
            with suppress(OptionError, _MisfitError):
                if arm is not type(None):
                    return _convert(arm, value, name, where)
    elif origin is Literal:
        for choice in inner:
            if value == choice or (isinstance(value, str) and value == str(choice)):
                return choice
    elif origin in (tuple, list):
        if isinstance(value, str):
            value = [part.strip() for part in value.strip("[]()").split(",") if part.strip()]
        items = value if isinstance(value, Sequence) else [value]
        return tuple(_convert(inner[0], each.strip() if isinstance(each, str) else each, name, where) for each in items)
    elif hasattr(kind, "from_text"):
        if isinstance(value, kind):
            return value
        try:
            return kind.from_text(value if isinstance(value, str) else shown(value))
        except OptionError as error:
            raise OptionError(f"{_said(where)}{name}: {error}") from None
    elif dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if isinstance(value, kind):
            return value
        if isinstance(value, Mapping):
            return _build(kind, value, name + ".", where)
        raise _MisfitError("options of its own", value)
    elif origin is dict or kind is dict:
        if isinstance(value, Mapping):
            return dict(value)
    elif kind is Any:
        return value
    else:
        return _scalar(kind, value)
    raise _MisfitError(type_name(kind), value)


def _scalar(kind: Any, value: Any) -> Any:
    wrong = _MisfitError(type_name(kind), value)
    if kind is bool:
        if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
            return value.lower() in _TRUE
        if not isinstance(value, bool):
            raise wrong
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise wrong
    if kind is str:
        if isinstance(value, str) and _SURROGATE.search(value):
            raise _MisfitError("text in UTF-8", value)
        if isinstance(value, int) and value.bit_length() > 128:
            raise wrong
        return str(value)
    try:
        converted = kind(value)
    except (TypeError, ValueError, OverflowError):
        raise wrong from None
    if kind is int and isinstance(value, float) and value != converted:
        raise wrong
    return converted


def _said(where: str) -> str:
    return f"{where}: " if where else ""


def _default_text(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return value_text(field.default)
    if field.default_factory is not MISSING:
        return value_text(field.default_factory())
    return "required"


def value_text(value: Any) -> str:
    """A value as a person writes it: ``none``, ``true``, ``1,2``."""
    if isinstance(value, tuple | list):
        return ",".join(value_text(item) for item in value)
    return str(value).lower() if isinstance(value, bool | None) else str(value)


# --- the range of a number, declared once ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, both included unless `above` or `below` says otherwise. Never NaN."""

    low: float
    high: float
    above: bool = False
    """`low` itself is not in it"""
    below: bool = False
    """`high` itself is not in it"""

    @staticmethod
    def of(
        least: float | None = None, most: float | None = None, above: float | None = None, below: float | None = None
    ) -> Range | None:
        """From an option's declaration: one bound on each side; None where none is given."""
        lows, highs = [x for x in (least, above) if x is not None], [x for x in (most, below) if x is not None]
        if not lows and not highs:
            return None
        if len(lows) != 1 or len(highs) != 1 or math.isnan(lows[0]) or math.isnan(highs[0]):
            raise TypeError("a range expects one of least and above, and one of most and below.")
        return Range(lows[0], highs[0], above is not None, below is not None)

    def holds(self, value: Any) -> bool:
        """Whether a number is in it; comparisons with NaN are never true."""
        low = value > self.low if self.above else value >= self.low
        return bool(low and (value < self.high if self.below else value <= self.high))

    def fits(self, kind: Any, value: Any) -> bool:
        """Whether a value is of this type (int, float, one of them or None, a tuple of them) and its numbers in it."""
        origin, inner = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            return any(self.fits(arm, value) for arm in inner)
        if origin in (tuple, list):
            return isinstance(value, tuple | list) and all(self.fits(inner[0], item) for item in value)
        if kind is type(None):
            return value is None
        if isinstance(value, bool):
            return False
        return isinstance(value, Integral if kind is int else Real) and self.holds(value)

    def described(self, kind: Any) -> str:
        """What is expected: ``a whole number from 1 to 64``, ``a number above 0, at most 1 or none``."""
        origin, inner = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            arms = [self.described(arm) for arm in inner if arm is not type(None)]
            return " or ".join([*arms, *(["none"] if type(None) in inner else [])])
        if origin in (tuple, list):
            return f"a list of {self.described(inner[0]).removeprefix('a ').replace('number', 'numbers', 1)}"
        return f"a {'whole ' if kind is int else ''}number {self}"

    def __str__(self) -> str:
        low, high = _figure(self.low), _figure(self.high)
        if math.isinf(self.high):
            return f"above {low}" if self.above else f"of {low} or more"
        if self.above:
            return f"above {low} and below {high}" if self.below else f"above {low}, at most {high}"
        return f"from {low} to below {high}" if self.below else f"from {low} to {high}"


def shown(value: Any) -> str:
    """A value as errors show it: as Python writes it, cut where it is long."""
    if isinstance(value, int) and value.bit_length() > 128:  # Python refuses to write very long ones out
        return f"a whole number of about {int(value.bit_length() * math.log10(2)) + 1} digits"
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:200]}..."


def _figure(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"
