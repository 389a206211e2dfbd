"""Tests of operators that each instruction set has code of its own for run once for each that runs here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from longstride.runtime.native import graph, weights
from longstride.runtime.native.building import LIBRARIES, library_name, variants
from longstride.runtime.native.library import FORCED, library, operator_codes
from longstride.runtime.processor import this_processor
from tests.runtime.native import harness

THIS = this_processor()
RUNNABLE = [
    one.name
    for one in variants(THIS.machine)
    if one.needs <= THIS.flags and (LIBRARIES / library_name(one.name)).is_file()
]


@pytest.fixture(scope="module", params=RUNNABLE or ["none"])
def variant(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of one; all that is kept of another library is forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FORCED, request.param)
        forget()
        yield request.param
    forget()


def forget() -> None:
    for kept in (library, operator_codes, graph.pool, harness.pool):
        kept.cache_clear()
    weights._KEPT.clear()
