"""docs/reproduction.md has a row for every table and figure of the four papers, and a reason in each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reproduction.md"
VERDICTS = {"reproduced", "differs", "refuted", "not run", "method"}
PAPERS = {"Blockwise": (4, 4), "Generalized": (11, 4), "Interleaved": (6, 5), "Sequence-to-lattice": (9, 4)}
"""How many tables and figures each has."""


def rows(paper: str) -> list[list[str]]:
    (section,) = [part for part in PAGE.read_text().split("\n### ")[1:] if part.startswith(paper)]
    lines = [line for line in section.split("\n## ")[0].split("\n") if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def numbers(text: str, kind: str) -> set[int]:
    """Those of "Table 1", "Figures 1 to 3", "Tables 4 to 7"."""
    found: set[int] = set()
    for first, last in re.findall(rf"{kind}s? (\d+)(?: (?:to|and) (\d+))?", text):
        found |= set(range(int(first), int(last or first) + 1))
    return found


@pytest.mark.parametrize("paper", PAPERS)
def test_every_table_and_figure_has_a_row(paper: str) -> None:
    told = " ".join(row[0] for row in rows(paper))
    for kind, count in zip(("Table", "Figure"), PAPERS[paper], strict=True):
        assert numbers(told, kind) == set(range(1, count + 1))


@pytest.mark.parametrize("paper", PAPERS)
def test_every_row_has_a_verdict_and_a_reason(paper: str) -> None:
    for where, verdict, theirs, ours, records, reason in rows(paper):
        assert verdict in VERDICTS, where
        assert len(theirs) > 1
        assert len(reason) > 5
        assert (ours == "·") == (records == "·") == (verdict == "not run"), where
