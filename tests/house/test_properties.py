"""Which examples property tests draw: the same ones where a change is gated, others otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ASK = "import tests.conftest, hypothesis; print(hypothesis.settings().derandomize, hypothesis.settings().deadline)"


@pytest.mark.parametrize(("profile", "told"), [("ci", "True None"), (None, "False 0:00:00.200000")])
def test_examples_are_drawn_at_random_unless_told_otherwise(profile: str | None, told: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "HYPOTHESIS_PROFILE")}
    environment |= {"HYPOTHESIS_PROFILE": profile} if profile else {}
    done = subprocess.run(
        [sys.executable, "-c", ASK], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == told


def test_make_test_draws_the_same_ones_every_time() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "HYPOTHESIS_PROFILE ?= ci\n" in makefile
    assert "export HYPOTHESIS_PROFILE\n" in makefile
