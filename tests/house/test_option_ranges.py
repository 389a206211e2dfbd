"""Every number that can be set has a range, by its own declaration, and a value outside it is an OptionError."""

from __future__ import annotations

import ast
import dataclasses
import math
import re
import types
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

import longstride
from longstride.bench.measure import Protocol
from longstride.contract import Limits, OptionError
from longstride.contract.options import Options, parse
from longstride.distillation.options import DistillOptions, ShardRange
from longstride.interop.peers import PeerOptions
from longstride.objectives import OBJECTIVES
from longstride.recipe import Recipe
from longstride.registry import DECODERS, PARTS
from longstride.search.length_penalty import LengthPenalty
from longstride.systems.lattice.build import BuildOptions
from longstride.training.options import TrainingOptions
from longstride.verification.acceptance import Rule

SOURCE = Path(longstride.__file__).parent
REGISTERED: list[type] = [
    *(kind.options for kinds in (DECODERS, OBJECTIVES, PARTS) for kind in kinds.values()),  # type: ignore[attr-defined]
    *(Limits, Recipe, DistillOptions, BuildOptions, Protocol, PeerOptions, LengthPenalty, Rule, ShardRange),
]
THROWN: list[Any] = [
    *(math.nan, math.inf, -math.inf, 1e300, -1e300, -1e308, 1e-300, 0.5, -0.0),
    *(-1, 0, 1, 2, 99999999, 10**9, 10**20, -(10**20), 2**31, 2**63, 2**64, 10**400, 10**5000),
    *("nan", "inf", "-inf", "1e300", "-1", "0", "99999999999999999999", "9" * 5000, "", "none", "x", ",", "1,nan"),
    *(None, True, [], [math.nan], [-1], (10**20,), {}, {"x": 1}, "top:nan", "top:0", "top:1,gap:nan", "distance:inf"),
    *("distance:" + "9" * 5000, "top:-1", "3:2", f"{'9' * 5000}:", "exact", b"7", object()),
]


ANYTHING = st.sampled_from(THROWN) | st.floats() | st.integers() | st.text(max_size=9)

hints_of = cache(typing.get_type_hints)
"""Fields and their types, worked out once for a class."""


def nested(cls: type) -> Iterator[type]:
    """A class of options and those inside it."""
    yield cls
    for kind in hints_of(cls).values():
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            yield from nested(kind)


CLASSES = sorted({inner for cls in REGISTERED for inner in nested(cls)}, key=lambda cls: cls.__name__)


def numeric(kind: Any) -> bool:
    if get_origin(kind) in (typing.Union, types.UnionType, tuple, list):
        return any(numeric(arm) for arm in get_args(kind))
    return kind in (int, float)


def base(cls: type) -> dict[str, Any]:
    """Values for what has no default."""
    if cls is TrainingOptions:
        return {"steps": 5}
    found: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            kind = hints_of(cls)[field.name]
            examples: dict[Any, Any] = {int: 8, float: 1.0, str: "x"}
            if dataclasses.is_dataclass(kind) and isinstance(kind, type):
                examples[kind] = base(kind)
            found[field.name] = examples[kind] if kind in examples else get_args(kind)[0]
    return found


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_number_has_a_range(cls: type) -> None:
    assert issubclass(cls, Options)  # which checks, whoever makes it
    parse(cls, base(cls))  # so that what is thrown below meets nothing else that is wrong
    hints = hints_of(cls)
    without = [
        field.name for field in dataclasses.fields(cls) if numeric(hints[field.name]) and not field.metadata["range"]
    ]
    assert without == []


def test_no_other_option_in_the_source_is_a_number_without_a_range() -> None:
    without = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call)):
                continue
            called, said = node.value.func, ast.unparse(node.annotation)
            if not (isinstance(called, ast.Name) and called.id == "option" and re.search(r"\b(int|float)\b", said)):
                continue
            if len({keyword.arg for keyword in node.value.keywords} & {"least", "most", "above", "below"}) != 2:
                without.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert without == []


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_whatever_is_thrown_at_options_is_in_range_or_refused(cls: type, data: st.DataObject) -> None:
    known = dataclasses.fields(cls)
    if not known:
        return
    field = data.draw(st.sampled_from(known))
    value = data.draw(ANYTHING)
    bounds = field.metadata.get("range")
    kind = hints_of(cls)[field.name]
    arguments = {**base(cls), field.name: value}
    try:
        found = getattr(parse(cls, arguments), field.name)
    except OptionError:
        pass
    else:
        assert bounds is None or bounds.fits(kind, found)
    if bounds is None:
        return
    parsed = parse(cls, base(cls))
    made = {one.name: getattr(parsed, one.name) for one in known}
    try:
        found = getattr(cls(**{**made, field.name: value}), field.name)
    except OptionError:
        return
    assert bounds.fits(kind, found)
