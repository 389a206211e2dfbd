"""The range that an option declares: how it is checked, and how help and errors say it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import OptionError, option
from longstride.contract.options import Options, Range, fields, parse, shown


@dataclass(frozen=True)
class Bounded(Options):
    width: int = option(1, "", least=1, most=64)
    most: int | None = option(None, "", least=0, most=9)
    share: float = option(0.5, "", least=0, below=1)
    rate: float = option(0.5, "", above=0, most=2)
    gap: float = option(math.inf, "", least=0, most=math.inf)
    sizes: tuple[int, ...] = option((1,), "", least=1, most=8)
    kind: Literal["a", "b"] = option("a", "")


@dataclass(frozen=True)
class Outer(Options):
    inner: Bounded = option(Bounded(), "")


WRONG = [
    ("width", 0, "a whole number from 1 to 64, found 0."),
    ("width", 1_000_000, "a whole number from 1 to 64, found 1000000."),
    ("width", "many", "a whole number from 1 to 64, found 'many'."),
    ("width", math.nan, "a whole number from 1 to 64, found nan."),
    ("width", math.inf, "a whole number from 1 to 64, found inf."),
    ("width", 10**4000, "a whole number from 1 to 64, found a whole number of about 4001 digits."),
    ("most", 10, "a whole number from 0 to 9 or none, found 10."),
    ("share", 1.0, "a number from 0 to below 1, found 1.0."),
    ("share", math.nan, "a number from 0 to below 1, found nan."),
    ("rate", 0.0, "a number above 0, at most 2, found 0.0."),
    ("rate", math.inf, "a number above 0, at most 2, found inf."),
    ("gap", math.nan, "a number of 0 or more, found nan."),
    ("gap", -1.0, "a number of 0 or more, found -1.0."),
    ("sizes", (1, 9), "a list of whole numbers from 1 to 8, found (1, 9)."),
    ("kind", "c", "a|b, found 'c'."),
]


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_a_number_out_of_range_is_refused_however_the_options_are_made(name: str, value: Any, message: str) -> None:
    with pytest.raises(OptionError) as made:
        Bounded(**{name: value})
    assert str(made.value) == f"{name} expects {message}"
    with pytest.raises(OptionError) as parsed:
        parse(Outer, {"inner": {name: value}}, "here")
    assert str(parsed.value).replace("'", "") == f"here: inner.{name} expects {message}".replace("'", "")


def test_text_is_checked_like_numbers() -> None:
    for text in ("nan", "inf", "-1", "1e300", "x", "9" * 6000):
        with pytest.raises(OptionError, match="share expects a number from 0 to below 1"):
            parse(Bounded, {"share": text})
    with pytest.raises(OptionError, match=r"sizes expects .* from 1 to 8, found \(1, 0\)"):
        parse(Bounded, {"sizes": "1,0"})
    assert parse(Bounded, {"gap": "inf"}).gap == math.inf  # its declaration says so


def test_what_was_not_set_passes() -> None:
    assert Bounded(most=None) == parse(Bounded, {"most": "none"}) == Bounded()


def test_help_says_the_range() -> None:
    listed = {name: form for name, form, _, _ in fields(Bounded)}
    assert listed["width"] == "whole number from 1 to 64"
    assert listed["most"] == "whole number from 0 to 9 or none"
    assert listed["rate"] == "number above 0, at most 2"
    assert listed["sizes"] == "list of whole numbers from 1 to 8"


@given(st.floats() | st.integers(), st.integers(-9, 9), st.integers(0, 9), st.booleans(), st.booleans())
def test_a_range_holds_what_lies_between_its_ends(value: float, low: int, more: int, above: bool, below: bool) -> None:
    high = low + more
    bounds = Range(low, high, above, below)
    expected = not math.isnan(value) and (low < value or (low == value and not above))
    expected = expected and (value < high or (value == high and not below))
    assert bounds.holds(value) == expected


@pytest.mark.parametrize(
    "bounds", [{"least": 1}, {"most": 1}, {"least": 1, "above": 0, "most": 2}, {"least": 1, "most": math.nan}]
)
def test_half_a_range_is_none(bounds: dict[str, float]) -> None:
    with pytest.raises(TypeError, match="one of least and above, and one of most and below"):
        Range.of(**bounds)


def test_long_values_are_cut_in_errors() -> None:
    assert len(shown("x" * 10_000)) < 300
    assert shown(10**20) == "1" + "0" * 20


def test_a_name_of_many_dots_names_nothing() -> None:
    with pytest.raises(OptionError, match="there is no option"):
        parse(Bounded, {"." * 5000: 1})
