"""Every table and figure of the four papers has a row in docs/reproduction.md, a reason, and figures from records."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from longstride.bench.record_files import read_records
from longstride.bench.reproduction import VERDICTS, Entry, chosen, papers, reproduction_table, told, views_of
from longstride.contract import InputError

ROOT = Path(__file__).parents[2]
COUNTS = {"blockwise": (4, 4), "gad": (11, 4), "interleaved": (6, 5), "lattice": (9, 4)}
"""How many tables and figures each paper has."""
ROWS = papers().row


@pytest.mark.parametrize("paper", COUNTS)
def test_every_table_and_figure_has_a_row(paper: str) -> None:
    there = " ".join(row.there for row in ROWS if row.paper == paper)
    for kind, count in zip(("Table", "Figure"), COUNTS[paper], strict=True):
        assert {int(number) for number in re.findall(rf"{kind} (\d+)", there)} == set(range(1, count + 1))


def test_every_row_says_what_it_is() -> None:
    assert {row.paper for row in ROWS} == set(papers().title) == set(COUNTS)
    for row in ROWS:
        assert row.verdict in VERDICTS
        assert len(row.theirs) > 10
        assert re.search(r"\w{3}.*[.]$", row.reason), row.there
        assert bool(row.ours) == bool(row.records) == (row.verdict not in ("not run", "method")), row.there
        for recipe in re.findall(r"`(recipes/[^`]+)`", row.reason):
            assert list(ROOT.glob(recipe)), recipe


def test_the_page_shows_every_row() -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    for row in ROWS:
        assert f"| {papers().title[row.paper]} | {row.there} | {row.verdict} |" in page


def test_every_record_is_in_the_file_that_is_named() -> None:
    names = {row.file(name) for row in ROWS for name in row.records}
    views = {name: views_of(read_records([ROOT / "benchmarks" / "results" / name])) for name in names}
    for row in ROWS:
        if len({row.file(name) for name in row.records}) == 1:
            assert chosen(row, views[row.file(next(iter(row.records)))])
        for name in row.records:
            alone = Entry(row.paper, row.there, row.verdict, "", "", where=row.where, records={name: row.records[name]})
            assert chosen(alone, views[row.file(name)])


def test_a_row_without_its_record_is_refused() -> None:
    with pytest.raises(InputError, match="expected one record"):
        reproduction_table([])


def test_figures_are_made_of_records() -> None:
    records = read_records([ROOT / "benchmarks" / "results" / name for name in ("en-de.jsonl", "bundled.jsonl")])
    row = next(row for row in ROWS if row.there.startswith("Section 7.1"))
    found = chosen(row, views_of(records))
    assert f"{found['top'].record.counts.mean_block:.2f} at " in told(row, found)
    lost = found["top"].record.scores[0].value - found["one"].record.scores[0].value
    assert f"{lost:.2f}".replace("-", "−") in told(row, found)
    unscored = views_of([replace(view.record, scores=()) for view in found.values()])
    with pytest.raises(InputError, match=r"expected values for .* found one missing"):
        told(row, dict(zip(found, unscored, strict=True)))
