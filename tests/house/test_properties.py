"""Which examples property tests draw: the same ones where a change is gated, others otherwise; and who hears Ctrl-C."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import conftest

ROOT = Path(__file__).resolve().parents[2]
ASK = "import tests.conftest, hypothesis; print(hypothesis.settings().derandomize, hypothesis.settings().deadline)"


@pytest.mark.parametrize(("profile", "told"), [("ci", "True None"), ("default", "False None"), (None, "False None")])
def test_examples_are_drawn_at_random_unless_told_otherwise(profile: str | None, told: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "HYPOTHESIS_PROFILE")}
    environment |= {"HYPOTHESIS_PROFILE": profile} if profile else {}
    done = subprocess.run(
        [sys.executable, "-c", ASK], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == told


def test_nobody_else_chooses_how_examples_are_drawn() -> None:
    """A profile that one folder loads holds for all tests that are collected behind it."""
    loading = [path for path in (ROOT / "tests").rglob("*.py") if "settings.load_profile(" in path.read_text("utf-8")]
    assert set(loading) == {Path(conftest.__file__), Path(__file__)}  # this one names it


def test_make_test_draws_the_same_ones_every_time() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "HYPOTHESIS_PROFILE ?= ci\n" in makefile
    assert "export HYPOTHESIS_PROFILE\n" in makefile


def test_ctrl_c_reaches_what_tests_start_even_in_the_background() -> None:
    """A shell lets what it begins in the background ignore it, and so would all commands that tests interrupt."""
    ignored = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    ask = f"{ignored}import tests.conftest; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_where_they_are_the_same_half_of_them_are_drawn() -> None:
    """Once, however often a test is parametrised, and never fewer than a few."""
    wanted = {40: 20, 12: 6, 8: 5, 3: 3} if os.environ.get("HYPOTHESIS_PROFILE") == "ci" else {}
    for asked, drawn in wanted.items():

        @settings(max_examples=asked)
        @given(st.integers())
        def test(number: int) -> None:
            pass

        items: list[Any] = [SimpleNamespace(function=test, get_closest_marker=lambda name: None)] * 2
        conftest.pytest_collection_modifyitems(items)
        assert getattr(test, conftest.OWN).max_examples == drawn
