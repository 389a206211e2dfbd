"""`translate --glossary`: terms stand in the outputs; a line that is none is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

LINES = b"a b c\n\nt s r q p\n"


@pytest.mark.parametrize("decoder", ["greedy", "beam"])
def test_terms_stand_in_the_outputs(run: Run, model: Path, tmp_path: Path, decoder: str) -> None:
    (tmp_path / "terms.tsv").write_text("# ours\nb\tq q\nt s\n")
    how = ["translate", "-m", model, "--decoder", decoder, "--glossary", tmp_path / "terms.tsv"]
    ran = run(*how, stdin=LINES)
    assert ran.code == 0, ran.err
    first, empty, last = ran.out.splitlines()
    assert (" q q " in f" {first} ", empty, " t s " in f" {last} ") == (True, "", True)
    (tmp_path / "lines").write_bytes(LINES)
    out = tmp_path / "out"
    assert run(*how, "-i", tmp_path / "lines", "-o", out, "--resume").code == 0
    assert out.read_text() == ran.out


def test_what_is_wrong_is_named(run: Run, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text("a\tb\nb\tc\td\n")
    ran = run("translate", "-m", model, "--glossary", file, stdin=LINES)
    assert (ran.code, ran.out) == (2, "")
    assert f"{file}, line 2: expected a term" in " ".join(ran.err.split())
    ran = run("translate", "-m", model, "--glossary", tmp_path / "none.tsv", stdin=LINES)
    assert ran.code == 2
    assert "none.tsv: expected a text file, found none." in " ".join(ran.err.split())


def test_a_server_reads_one_for_each_model(run: Run, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text("a\tb\n")
    ran = run("serve", "-m", f"en-de={model}", "--glossary", file, "--glossary", file, "--check")
    assert ran.code == 2
    assert "--glossary expects one file for each of 1 models, found 2." in " ".join(ran.err.split())
