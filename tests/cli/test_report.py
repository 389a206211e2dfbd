"""Pages from records, and whether they are stale."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Run

MARKED = "# Title\n\n<!-- report:quality/tiny-src -->\n<!-- /report -->\n\nThe end.\n"


@pytest.fixture
def here(run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with records where reports look for them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").write_text("a b\nc\n")
    record = ["--record", "benchmarks/results/first.jsonl"]
    assert run("evaluate", "-m", model, "-s", "src", "-r", "src", "--device", "cpu", *record).code == 0
    (tmp_path / "README.md").write_text(MARKED)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "guide.md").write_text(MARKED)
    (tmp_path / "docs" / "plain.md").write_text("Nothing marked.\n")
    return tmp_path


def test_every_page_is_filled_and_checking_tells_stale_ones(run: Run, here: Path) -> None:
    stale = run("report", "--check")
    assert stale.code == 1
    for name in ("docs/results.md", "README.md", "docs/guide.md"):
        assert name in stale.err
    assert (here / "README.md").read_text() == MARKED
    assert not (here / "docs" / "results.md").exists()

    ran = run("report")
    assert ran.code == 0
    assert "Wrote README.md." in ran.err
    assert "| BLEU" in (here / "README.md").read_text() or "BLEU |" in (here / "README.md").read_text()
    assert (here / "README.md").read_text().endswith("\n\nThe end.\n")
    assert (here / "docs" / "plain.md").read_text() == "Nothing marked.\n"
    assert "BLEU" in (here / "docs" / "results" / "tables" / "quality-tiny-src.csv").read_text()

    assert run("report", "--check").code == 0
    assert "up to date" in run("report").err
    (here / "docs" / "guide.md").write_text(MARKED)
    stale = run("report", "--check")
    assert stale.code == 1
    assert "docs/guide.md" in stale.err
    assert "README.md" not in stale.err


def test_records_pages_and_folder_can_be_named(run: Run, here: Path) -> None:
    ran = run("report", "benchmarks/results/first.jsonl", "-o", "out", "--page", "README.md")
    assert ran.code == 0
    assert (here / "out" / "results.md").exists()
    assert (here / "README.md").read_text() != MARKED
    assert (here / "docs" / "guide.md").read_text() == MARKED


def test_misuse_is_told_in_one_sentence(run: Run, here: Path) -> None:
    (here / "bad.jsonl").write_text("{}\n")
    assert "bad.jsonl, line 1: expected records of schema 1" in run("report", "bad.jsonl", "-o", "out").error
    assert "none.jsonl: expected a file of records" in run("report", "none.jsonl", "-o", "out").error
    (here / "README.md").write_text(MARKED.replace("tiny-src", "unknown"))
    assert "README.md: expected a marker named quality/tiny-src, found 'quality/unknown'" in run("report").error
    (here / "benchmarks" / "results" / "first.jsonl").unlink()
    assert "benchmarks/results: expected files of records (*.jsonl), found none" in run("report").error


@pytest.mark.parametrize(
    "page", ["<!-- report:unknown -->\n<!-- /report -->\n", "<!-- report:quality/tiny-src -->\n", "\udcff"]
)
def test_a_page_that_cannot_be_filled_is_told_before_anything_is_written(run: Run, here: Path, page: str) -> None:
    (here / "page.md").write_bytes(page.encode("utf-8", "surrogateescape"))
    ran = run("report", "-o", "out", "--page", "README.md", "--page", "page.md")
    assert (ran.code, "page.md: expected a" in ran.error) == (2, True)
    assert (here / "README.md").read_text() == MARKED
    assert not (here / "out").exists()


def test_a_page_is_a_regular_file(run: Run, here: Path) -> None:
    os.mkfifo(here / "fifo")
    assert "fifo: expected a page with markers, found: no regular file." in run("report", "--page", "fifo").error
