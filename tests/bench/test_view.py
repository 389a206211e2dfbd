"""The language of the files in pages/: templates, conditions, and that they name nothing that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, fields
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.bench.records import KINDS
from longstride.bench.sources import EXPANSIONS, GROUPS, Page, page
from longstride.bench.table import Column, TableSpec, markdown
from longstride.bench.view import FIELDS, Paper, Scope, View
from longstride.contract import OptionError
from longstride.contract.options import parse

PAGES = sorted(one.name.removesuffix(".toml") for one in files("longstride.bench").joinpath("pages").iterdir())
EXTRAS = {
    *("run", "baseline", "score_name", "place", "rank", "distance", "bin", "bin_number", "bin_centre", "record_number"),
    *("curve", "value", "ms", "error", "cells", "stage", "stage_in_words"),
}
"""What groups and lists give views besides the fields of their records."""
KNOWN = {*FIELDS, *EXTRAS, *(field.name for kind in KINDS.values() for field in fields(kind))}


def view(**extras: Any) -> View:
    scope = Scope()
    made = View(None, scope, **extras)
    scope.found = [made]
    return made


def names_in(value: Any, key: str = "") -> Iterator[str]:
    """The fields that a part of a description names."""
    if isinstance(value, str):
        if key in ("cell", "heading", "text", "told", "y", "name", "family"):
            yield from re.findall(r"\{([^{}:]+)", value)
        elif key in ("rows", "sort", "best", "order", "each", "at", "value", "field", "of", "by", "most"):
            yield value.removeprefix("seen:").removeprefix("-")
    elif isinstance(value, dict) and key in ("keep", "where", "given", "having", "require", "lead", "baseline"):
        yield from value
    elif isinstance(value, dict) and key == "least":
        yield from " ".join(value).split()
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from names_in(inner, name)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from names_in(inner, key)


def described(table: TableSpec) -> dict[str, Any]:
    return {**asdict(table), "name": "", "of": ""}


@pytest.mark.parametrize("name", PAGES)
def test_descriptions_name_only_what_there_is(name: str) -> None:
    made = page(name)
    for table in made.table:
        values = described(table)
        for paper in made.papers.values():
            assert all(len(row) == len(paper.fields) for row in paper.rows)
        columns = [column for column in values.pop("columns") if not column["paper"] or column.pop("cell")]
        named = {one for one in names_in({**values, "columns": columns}) if one and not one.startswith("paper:")}
        lists = {"places", "ranks", "distances", "scores", "other_scores", "baselines"}
        assert {one.partition(".")[0] for one in named} - lists <= KNOWN, table.name
        assert {column.paper for column in table.columns if column.paper} <= set(made.papers)
        assert table.expand in ("", *EXPANSIONS)
        assert table.of in (*GROUPS, "run", "settings", "training", "distillation", "exactness", "profiles")
        for column in table.columns:
            if column.paper:
                told = set(re.findall(r"\{([^{}:]+)", column.cell))
                assert told <= set(made.papers[column.paper].fields), column.heading


def test_a_description_with_a_name_that_is_none_is_refused() -> None:
    table = {"name": "t", "columns": [{"heading": "a", "cell": "{a}", "colour": "red"}]}
    with pytest.raises(OptionError, match=r"there is no option 'table\.columns\.colour'"):
        parse(Page, {"title": "T", "table": [table]}, "pages/t.toml")


@given(st.floats(-1e6, 1e6), st.floats(1, 1e6))
def test_templates_have_formats_sums_and_minus_signs(value: float, number: float) -> None:
    one = view(a=value, b={"c": number})
    assert one.told("{a:.2f} of {b.c:,.0f}") == f"{value:.2f} of {number:,.0f}"
    assert one.told("{a:/1000 .3f}") == f"{value / 1000:.3f}"
    assert one.told("{a:*100 .1f}") == f"{value * 100:.1f}"
    assert one.told("{a:-34.46 −+.2f}") == f"{value - 34.46:+.2f}".replace("-", "−")
    assert one.told("{a} and {nothing}") is None
    assert one.told("no field") == "no field"


@given(st.integers(-5, 5), st.integers(-5, 5))
def test_conditions_are_met_as_they_say(value: int, other: int) -> None:
    one = view(a=value, b=other)
    assert one.meets({"a": other}) is one.meets({"a": {"same_as": "b"}}) is (value == other)
    assert one.meets({"a": [other, 0]}) is (value in (other, 0))
    assert one.meets({"a": {"above": other}}) is not one.meets({"a": {"most": other}})
    assert one.meets({"a": {"not": other}}) is (value != other)
    assert not one.meets({"none": {"above": other}})
    assert one.meets({"a": {"known": True}, "none": {"known": False}})
    assert one.meets({})


def test_a_papers_row_is_found_by_its_keys() -> None:
    paper = Paper(("k", "h", "bleu"), 2, ((1, True, 26.0), (2, True, 25.0)))
    found = paper.beside(view(k=2, h=True))
    assert found is not None
    assert found["bleu"] == 25.0
    assert paper.beside(view(k=3, h=True)) is None


def test_markdown_pads_and_escapes() -> None:
    table = markdown([Column("a", ["x|y"], numeric=False), Column("b", ["1"]), Column("c", ["·"])])
    assert table == "| a    |   b |\n| ---- | --: |\n| x\\|y |   1 |\n"
