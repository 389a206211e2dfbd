"""The range of a number, declared once: it is checked, and said in help and in errors, from that declaration."""

from __future__ import annotations

import math
import types
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Union, get_args, get_origin


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
