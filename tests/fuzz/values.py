"""Numbers and strings that programs stumble over."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from random import Random
from typing import Any, Literal

NUMBERS = (
    *("0", "-1", "1", "2", "-0", "-0.0", "0.5", "1.5", "-1e-9", "1e-320", "1e300", "-1e308", "1e999"),
    *("nan", "-nan", "inf", "-inf", "Infinity", "NaN"),
    *("127", "256", "1000", "65536", "100000", "1000000", "99999999", str(2**31), str(2**32), str(2**53)),
    *(str(2**63 - 1), str(2**63), str(10**20), str(-(10**20)), "9" * 5000),
    *("", " ", "1 ", "+1", "1_000", "0x10", "1,5", "one", "١٢", "²", "1e", "1.", ".", "--", "None", "true"),
)

STRINGS = (
    *("", " ", "\t", "\n", "a\nb", "-", "--", "-x", "=", "a=b", ",", ";", ":", "a,,b", ".", "..", "a/b"),
    *("*", "[red]x[/red]", "[/]", "{}", "{0}", "%s", "%n", "\\", "'", '"', "$HOME", "~", "#", "null", "None", "nan"),
    *("ä", "日本", "🙂", "\u202e", "\u2028", "\x1b[31m", "\x7f", "\udcff", "e\u0301", "\ufeff"),
    *("x" * 250, "x" * 300, "y" * 5000, "0", "-1", "99999999999999999999", "1e300"),
)


def odd(rng: Random, kind: type) -> str:
    """A value that an option of this kind is not often given."""
    if kind in (int, float):
        return rng.choice(NUMBERS) if rng.random() < 0.9 else rng.choice(STRINGS)
    return rng.choice(STRINGS) if rng.random() < 0.8 else rng.choice(NUMBERS)


def small(rng: Random, least: float | None = None) -> str:
    """A number that most options take, and that asks for little work."""
    return str(max(int(least or 0), rng.choice((1, 1, 2, 2, 3, 4, 5, 8))))


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of a class of options, nested ones with dotted names."""

    name: str
    hint: Any
    default: Any

    @property
    def number(self) -> type:
        """int or float, where it expects one; else str"""
        return next((one for one in _alternatives(self.hint) if one in (int, float)), str)


def fields(cls: type, prefix: str = "") -> Iterator[Field]:
    """The fields of an options dataclass."""
    hints = typing.get_type_hints(cls)
    for one in dataclasses.fields(cls):
        hint = hints[one.name]
        if dataclasses.is_dataclass(hint) and isinstance(hint, type) and not hasattr(hint, "from_text"):
            yield from fields(hint, f"{prefix}{one.name}.")
        else:
            yield Field(prefix + one.name, hint, one.default)


def assignment(rng: Random, choices: list[Field], faulty: bool) -> str:
    """``name=value``, as --set takes it."""
    if not choices:
        return "x=1"
    one = rng.choice(choices)
    if faulty and rng.random() < 0.15:
        return rng.choice((one.name, f"{one.name}x=1", f"={one.name}", *STRINGS))
    return f"{one.name}={odd(rng, one.number) if faulty else _usual(rng, one)}"


def _usual(rng: Random, field: Field) -> str:
    """A value that the field's type allows; whether its range does too, only the code knows."""
    kinds = [one for one in _alternatives(field.hint) if one is not type(None)]
    kind = rng.choice(kinds) if kinds else str
    if typing.get_origin(kind) is Literal:
        return str(rng.choice(typing.get_args(kind)))
    if kind is bool:
        return rng.choice(("true", "false"))
    if kind is int:
        return small(rng)
    if kind is float:
        return rng.choice(("0", "0.1", "0.5", "1", "1.5", "2"))
    return str(field.default) if field.default is not dataclasses.MISSING else rng.choice(("1", "exact", "a"))


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
