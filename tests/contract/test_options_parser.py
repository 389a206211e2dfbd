from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import Limits, OptionError, option
from longstride.contract.options import (
    Options,
    as_dict,
    assignments,
    fields,
    merged,
    parse,
    type_name,
    value_text,
)


def changed(options: Any) -> dict[str, str]:
    """The options that differ from their defaults, as text."""
    result: dict[str, str] = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if value == default:
            continue
        if dataclasses.is_dataclass(value) and not hasattr(value, "from_text"):
            result.update({f"{field.name}.{name}": text for name, text in changed(value).items()})
        else:
            result[field.name] = value_text(value)
    return result


@dataclass(frozen=True)
class Rule:
    """Has a text form."""

    kind: str = "exact"
    bound: float = 0.0

    form = "exact or near:BOUND"

    @staticmethod
    def from_text(text: str) -> Rule:
        kind, _, bound = text.partition(":")
        if kind not in ("exact", "near"):
            raise OptionError(f"expected {Rule.form}, found {text!r}.")
        return Rule(kind, float(bound or 0))

    def __str__(self) -> str:
        return self.kind if self.kind == "exact" else f"{self.kind}:{self.bound}"


@dataclass(frozen=True)
class Inner(Options):
    width: int = option(8, "How wide.", least=1, most=999)
    norm: Literal["pre", "post"] = option("post", "Where norms stand.")


@dataclass(frozen=True)
class Outer:
    steps: int = option(10, "How many steps.")
    rate: float = option(0.5, "How fast.")
    name: str = option("plain", "What it is called.")
    fast: bool = option(False, "Whether to hurry.")
    limit: int | None = option(None, "Where to stop.")
    sizes: tuple[int, ...] = option((), "Several sizes.")
    order: Literal[1, 2] = option(1, "Which order.")
    accept: Rule = option(Rule(), "What is accepted.")
    inner: Inner = option(Inner(), "Options of its own.")


finite = st.floats(allow_nan=False, allow_infinity=False)
# Commas and brackets have a meaning in lists and "none" in optional values; plain text has none of these troubles.
inners = st.builds(Inner, width=st.integers(1, 999), norm=st.sampled_from(["pre", "post"]))
rules = st.just(Rule()) | st.builds(Rule, kind=st.just("near"), bound=finite)
outers = st.builds(
    Outer,
    steps=st.integers(),
    rate=finite,
    name=st.text(),
    fast=st.booleans(),
    limit=st.none() | st.integers(),
    sizes=st.lists(st.integers(), max_size=4).map(tuple),
    order=st.sampled_from([1, 2]),
    accept=rules,
    inner=inners,
)


@given(outers)
def test_plain_data_comes_back(options: Outer) -> None:
    assert parse(Outer, as_dict(options)) == options
    assert parse(Outer, json.loads(json.dumps(as_dict(options)))) == options


@given(outers)
def test_the_text_of_what_changed_comes_back(options: Outer) -> None:
    texts = changed(options)
    assert all(isinstance(text, str) for text in texts.values())
    assert parse(Outer, texts) == options
    again = assignments([f"{name}={text}" for name, text in texts.items()])
    if options.name == options.name.strip():  # --set takes the spaces around a value off
        assert parse(Outer, again) == options


def test_defaults_change_nothing() -> None:
    assert changed(Outer()) == {}
    assert parse(Outer, {}) == Outer()


@pytest.mark.parametrize(
    ("name", "text", "typed"),
    [
        ("steps", "3", 3),
        ("rate", "1e-3", 0.001),
        ("rate", "2", 2),
        ("name", "x", "x"),
        ("fast", "yes", True),
        ("fast", "OFF", False),
        ("limit", "none", None),
        ("limit", "7", 7),
        ("sizes", "1,2, 3", [1, 2, 3]),
        ("sizes", "[4]", (4,)),
        ("sizes", "", []),
        ("order", "2", 2),
        ("accept", "near:0.5", Rule("near", 0.5)),
        ("inner.norm", "pre", "pre"),
    ],
)
def test_text_and_typed_values_agree(name: str, text: str, typed: Any) -> None:
    assert parse(Outer, {name: text}) == parse(Outer, {name: typed})


def test_nested_and_dotted_names_agree() -> None:
    expected = Outer(inner=Inner(width=3, norm="pre"))
    assert parse(Outer, {"inner": {"width": 3, "norm": "pre"}}) == expected
    assert parse(Outer, {"inner.width": "3", "inner.norm": "pre"}) == expected
    assert parse(Outer, {"inner": {"width": 3}, "inner.norm": "pre"}) == expected
    assert parse(Outer, {"inner": Inner(3, "pre")}) == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"stpes": 1},
            r"no option 'stpes' \(did you mean steps\?\); the options are steps, rate, name, fast, .*accept, inner",
        ),
        ({"inner.depth": 1}, r"no option 'inner\.depth'.*; the options are width, norm"),
        ({"steps": "many"}, "'steps' expects int, found 'many'"),
        ({"steps": 1.5}, r"'steps' expects int, found 1\.5"),
        ({"steps": True}, "'steps' expects int, found True"),
        ({"steps": None}, "'steps' expects int, found None"),
        ({"steps": [1]}, r"'steps' expects int, found \[1\]"),
        ({"rate": "fast"}, "'rate' expects float, found 'fast'"),
        ({"name": [1]}, "'name' expects text"),
        ({"fast": "maybe"}, "'fast' expects bool, found 'maybe'"),
        ({"fast": 1}, "'fast' expects bool, found 1"),
        ({"limit": "x"}, "'limit' expects int or none, found 'x'"),
        ({"sizes": "1,x"}, "'sizes' expects int, found 'x'"),
        ({"order": "3"}, r"'order' expects 1\|2, found '3'"),
        ({"inner.norm": "middle"}, r"'inner\.norm' expects pre\|post, found 'middle'"),
        ({"inner": 3}, "'inner' expects options of its own, found 3"),
        ({"inner.width": 0}, r"^inner\.width expects a whole number from 1 to 999, found 0\.$"),
        ({"inner.width": "wide"}, r"^inner\.width expects a whole number from 1 to 999, found 'wide'\.$"),
        ({"accept": "often"}, "accept: expected exact or near:BOUND, found 'often'"),
        ({3: 4}, "expected a name for an option, found 3"),
        ({"inner": {3: 4}}, "inner expects a name for an option, found 3"),
        ({"inner.width": 3, "inner": {None: 4}}, "inner expects a name for an option, found None"),
    ],
)
def test_wrong_values_are_named_with_what_was_expected(values: dict[Any, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(Outer, values)


def test_errors_say_whose_options_these_are() -> None:
    with pytest.raises(OptionError, match=r"^recipe\.yaml: there is no option 'x'"):
        parse(Outer, {"x": 1}, where="recipe.yaml")
    with pytest.raises(OptionError, match=r"^recipe\.yaml: width expects"):
        parse(Inner, {"width": 0}, where="recipe.yaml")


def test_what_has_no_default_is_required() -> None:
    @dataclass(frozen=True)
    class Needy:
        path: str = option(help="Where it is.")

    # Annotations of a local class cannot name other local classes, but text is known everywhere.
    with pytest.raises(OptionError, match=r"'path' \(text\) is required"):
        parse(Needy, {})
    assert parse(Needy, {"path": "x"}).path == "x"


@pytest.mark.parametrize("text", ["width", "=3", "", "  =3"])
def test_assignments_refuse_what_is_none(text: str) -> None:
    with pytest.raises(OptionError, match="name=value"):
        assignments([text])


def test_assignments_keep_later_equals_signs() -> None:
    assert assignments(["a=b=c", " d = e "]) == {"a": "b=c", "d": "e"}


@given(st.dictionaries(st.sampled_from("abc"), st.integers() | st.dictionaries(st.sampled_from("xy"), st.integers())))
def test_merging_nothing_changes_nothing(base: dict[str, Any]) -> None:
    assert merged(base, {}) == base
    assert merged({}, base) == base
    assert merged(base, base) == base


def test_merging_lays_one_over_the_other() -> None:
    base = {"a": {"x": 1, "y": 2}, "b": 3}
    assert merged(base, {"a.x": 9, "c.z": 4}) == {"a": {"x": 9, "y": 2}, "b": 3, "c": {"z": 4}}
    assert merged(base, {"a": {"y": 5}}) == {"a": {"x": 1, "y": 5}, "b": 3}
    assert base == {"a": {"x": 1, "y": 2}, "b": 3}


def test_help_lists_every_option_with_its_sentence() -> None:
    listed = {name: (kind, default, sentence) for name, kind, default, sentence in fields(Outer)}
    assert listed["inner.norm"] == ("pre|post", "post", "Where norms stand.")
    assert listed["accept"] == ("exact or near:BOUND", "exact", "What is accepted.")
    assert listed["limit"] == ("int or none", "none", "Where to stop.")
    assert listed["sizes"][0] == "a list of int"
    assert "inner" not in listed


def test_types_are_named_as_people_write_them() -> None:
    assert type_name(str) == "text"
    assert type_name(Literal["a", "b"]) == "a|b"


@given(st.builds(Limits, max_length=st.integers(1, 500), max_ratio=st.floats(0, 9), banned=st.just((7, 8))))
def test_limits_are_options_like_any_other(limits: Limits) -> None:
    assert parse(Limits, changed(limits)) == limits
