"""What lattice recall and lattice inspect measure, kept as records that the report renders."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import longstride
from longstride import model_folder
from longstride.bench.record_files import read_records
from longstride.bench.records import Curves
from longstride.bench.sources import sections
from longstride.model_folder import DecoderConfig, Part
from tests.cli.conftest import Run
from tests.folders import words
from tests.lattice.models import tiny_scorer

SOURCE, TARGET = ["a b c", "b c", "a", "c a b", "b a"], ["d e f", "e f", "d", "f d e", "e d"]


@pytest.fixture
def folder(run: Run, tmp_path: Path) -> Path:
    """A scorer beside tables, and the text that these were counted in."""
    words().save(tmp_path / "tokenizer.model")
    for name, lines in (("src", SOURCE), ("tgt", TARGET)):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines * 5))
    text = ["-s", tmp_path / "src", "-t", tmp_path / "tgt", "--device", "cpu"]
    assert (
        run("lattice", "build", *text, "--tokenizer", tmp_path / "tokenizer.model", "-o", tmp_path / "tables").code == 0
    )
    scorer = tiny_scorer(dtype=torch.float32, vocabulary=words().size, longest=24)
    tables = longstride.load(tmp_path / "tables", device="cpu").part("tables")
    parts = {"model": Part("scorer", scorer.options, scorer), "tables": Part("tables", tables.options, tables)}
    decoders = {"lattice": DecoderConfig({"model": "model", "tables": "tables"})}
    model_folder.write(tmp_path / "model", parts, decoders, "lattice", words())
    return tmp_path / "model"


def test_all_three_are_recorded_and_rendered(run: Run, folder: Path, tmp_path: Path) -> None:
    kept = ["--record", tmp_path / "r.jsonl", "--experiment", "e", "--workload", "w", "--device", "cpu"]
    text = ["-s", tmp_path / "src", "-r", tmp_path / "tgt"]
    assert run("lattice", "recall", "-m", folder, *text, "--candidates", "1,3", *kept).code == 0
    look = ["lattice", "inspect", "-m", folder, "-i", tmp_path / "src", "--set", "candidates=3", *kept]
    assert run(*look, "--ranks", tmp_path / "ranks.json", "--times", tmp_path / "times.jsonl").code == 0
    records = read_records([tmp_path / "r.jsonl"])
    recall, ranks, stages = (record for record in records if isinstance(record, Curves))
    assert (recall.name, recall.places, recall.workload.size) == ("recall", (1.0, 3.0), 25)
    assert [curve.name for curve in recall.curves] == ["tables", "shared", "model"]
    assert recall.curves[0].values == (1.0, 1.0)
    assert (ranks.name, ranks.places) == ("ranks", (1.0, 2.0, 3.0))
    assert [curve.name for curve in ranks.curves] == ["edges", "candidates"]
    assert ranks.decoder.startswith("lattice|candidates:3|")
    assert (stages.name, len(stages.places)) == ("stages", 25)
    assert [curve.name for curve in stages.curves] == ["encode", "candidates", "score", "search"]
    assert {section.name for section in sections("lattice", records)} == {"recall/e-w", "ranks/e-w", "stages/e-w"}


def test_pictures_are_no_records(run: Run, folder: Path, tmp_path: Path) -> None:
    ran = run("lattice", "inspect", "-m", folder, "-i", tmp_path / "src", "--record", tmp_path / "r.jsonl")
    assert ran.code == 2
    assert "--record expects --input and one of --ranks and --times" in ran.error
    (tmp_path / "other.txt").write_text("no record\n")
    text = ["-s", tmp_path / "src", "-r", tmp_path / "tgt"]
    ran = run("lattice", "recall", "-m", folder, *text, "--record", tmp_path / "other.txt")
    assert "other.txt, line 1: expected a JSON object" in ran.error
