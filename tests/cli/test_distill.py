"""Distillation by the command line."""

from __future__ import annotations

import json
from pathlib import Path

import longstride
from longstride.cli.distill import left_out
from tests.cli.conftest import Run
from tests.folders import LONGEST, write_folder

LINES = ["a b c", "d e", "", "f g h i", " ".join("a" * (LONGEST + 3))]
KEEP = ["--option", "keep_all=true", "--device", "cpu", "--set", "max_length=8"]


def test_the_corpus_is_what_the_teacher_translates(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "src").write_text("".join(line + "\n" for line in LINES))
    ran = run("distill", "-m", model, "-i", tmp_path / "src", "-o", tmp_path / "out", *KEEP)
    assert ran.code == 0
    assert ran.err.count("Carried out by ") == 1
    translator = longstride.load(model, device="cpu")
    expected = [one.text for one in translator.translate(LINES, "beam", max_length=8, warn=lambda said: None)]
    assert (tmp_path / "out" / "train.tgt").read_text().split("\n")[:-1] == expected
    assert (tmp_path / "out" / "train.src").read_text().split("\n")[:-1] == LINES
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["kept"] == len(LINES)
    assert manifest["degenerate"]["source too long"] == 1


def test_what_is_left_out_is_said(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "src").write_text("a b c d e f g\n" * 3)
    ran = run("distill", "-m", model, "-i", tmp_path / "src", "-o", tmp_path / "out", "--device", "cpu")
    assert "3 of 3 outputs are left out as degenerate (empty output 3)" in ran.err
    assert "max_ratio" not in ran.err
    ran = run("distill", "-m", model, "-i", tmp_path / "src", "-o", tmp_path / "kept", *KEEP)
    assert "left out" not in ran.err
    short = {"kept": 2, "dropped": 7, "degenerate": {"length ratio": 6, "loop": 1}}
    assert "--option rules.max_ratio=1000 keeps them" in left_out(short)


def test_stopped_halfway_it_goes_on(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "src").write_text("".join(line + "\n" for line in LINES))
    command = ["distill", "-m", model, "-i", tmp_path / "src", *KEEP, "--option", "shard_lines=2"]
    assert run(*command, "-o", tmp_path / "whole").code == 0
    part = run(*command, "-o", tmp_path / "parts", "--option", "shards=0:2")
    assert "2 of 3 shards are there" in part.err
    assert "found shards in it" in run(*command, "-o", tmp_path / "parts").error
    assert "found shards in it" in run(*command, "-o", tmp_path / "parts", "--processes", "2").error
    assert run(*command, "-o", tmp_path / "parts", "--resume", "--record", tmp_path / "records").code == 0
    told = json.loads((tmp_path / "records").read_text())
    assert (told["sentences"], told["decoded"]) == (len(LINES), len(LINES) - 4), "two shards of two were there"
    for name in ("train.src", "train.tgt"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_several_teachers_are_an_ensemble(run: Run, model: Path, tmp_path: Path) -> None:
    other = write_folder(tmp_path / "other", seed=8)
    (tmp_path / "src").write_text("a b\n")
    both = ["distill", "-m", model, "-m", other, "-i", tmp_path / "src", "-o", tmp_path / "out", *KEEP]
    assert "--decoder expects beam for several teachers, found 'greedy'" in run(*both, "--decoder", "greedy").error
    assert run(*both).code == 0
    assert "beam|ensemble:2|" in (tmp_path / "out" / "manifest.json").read_text()


def test_misuse_is_told_in_one_sentence(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "src").write_text("a b\n")
    command = ["distill", "-m", model, "-o", tmp_path / "out", "--device", "cpu"]
    assert "none: expected a text file" in run(*command, "-i", "none").error
    assert "there is no option 'colour'" in run(*command, "-i", tmp_path / "src", "--option", "colour=red").error
    assert "expects first:last" in run(*command, "-i", tmp_path / "src", "--option", "shards=x").error.replace(
        "expected first:last", "expects first:last"
    )
    (tmp_path / "src").write_bytes(b"a\n\xff\n")
    assert "src, line 2: expected UTF-8" in run(*command, "-i", tmp_path / "src").error
    assert not (tmp_path / "out").exists()
