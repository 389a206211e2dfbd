"""Candidate tables by the command line: built, put into models, measured; and what can be wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import longstride
from longstride import model_folder
from longstride.contract import RESERVED, ModelFolderError
from longstride.model_folder import CONFIG, DecoderConfig, ModelFolder, Part
from longstride.text.tokenizer import WordsTokenizer
from tests.cli.conftest import Run
from tests.folders import edit_config, words
from tests.lattice.models import tiny_scorer

SOURCE = ["a b c", "b c", "a", "", "c a b", "b a"]
TARGET = ["d e f", "e f", "d", "", "f d e", "e d"]
"""Each word has a translation of its own, in its own place."""


@pytest.fixture
def text(tmp_path: Path) -> list[object]:
    """Options that name a corpus."""
    for name, lines in (("src", SOURCE), ("tgt", TARGET)):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines * 5))
    return ["-s", tmp_path / "src", "-t", tmp_path / "tgt", "--device", "cpu"]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    words().save(tmp_path / "tokenizer.model")
    return tmp_path / "tokenizer.model"


@pytest.fixture
def built(run: Run, tmp_path: Path, text: list[object], tokenizer: Path) -> Path:
    ran = run("lattice", "build", *text, "--tokenizer", tokenizer, "-o", tmp_path / "tables")
    assert ran.code == 0, ran
    assert "25 pairs with 55 target words" in ran.err
    assert "Left out 5 pairs by length" in ran.err
    return tmp_path / "tables"


def test_tables_are_a_model_that_translates_word_for_word(run: Run, built: Path) -> None:
    assert run("translate", "-m", built, "--device", "cpu", stdin=b"a b c\n\nc a b\n").out == "d e f\n\nf d e\n"
    assert "counts" in run("decoders", "-m", built).out
    manifest = ModelFolder(built).config.provenance["tables"]
    assert manifest["pairs"] == 25
    assert manifest["alignment"].startswith("fast_align, 5 iterations")
    assert manifest["target_tokenizer_sha256"] == words().sha256


def test_building_twice_gives_the_same_tables(run: Run, built: Path, text: list[object], tokenizer: Path) -> None:
    before = ModelFolder(built).parts["tables"].sha256
    assert run("lattice", "build", *text, "--tokenizer", tokenizer, "-o", built).code == 0
    assert ModelFolder(built).parts["tables"].sha256 == before


def test_dropped_into_a_model_they_are_one_more_part(
    run: Run, own_model: Path, text: list[object], tmp_path: Path
) -> None:
    before = longstride.load(own_model, device="cpu").translate("a b c")
    for _ in range(2):  # the second time they replace themselves
        assert run("lattice", "build", *text, "-m", own_model, "--drop-in").code == 0
    translator = longstride.load(own_model, device="cpu")
    assert translator.decoders == ["greedy", "beam", "counts"]
    assert translator.translate("a b c") == before
    assert translator.translate("a b c", decoder="counts") == "d e f"
    assert translator.folder.config.provenance["recipe"] == {"name": "tiny"}
    # Other counts under the same name: the old file goes.
    (tmp_path / "src").write_text("a\n")
    (tmp_path / "tgt").write_text("f\n")
    assert run("lattice", "build", *text, "-m", own_model, "--drop-in").code == 0
    assert longstride.load(own_model, device="cpu").translate("a", decoder="counts") == "f"
    assert len(list(own_model.glob("tables*"))) == 1
    assert not list(own_model.glob(".*"))


def test_built_tables_are_added_to_a_model(run: Run, built: Path, own_model: Path) -> None:
    assert run("lattice", "add", built, "-m", own_model).code == 0
    assert longstride.load(own_model, device="cpu").translate("b c", decoder="counts") == "e f"
    assert ModelFolder(own_model).parts["tables"].sha256 == ModelFolder(built).parts["tables"].sha256


def test_tables_for_another_vocabulary_are_refused_by_hash(
    run: Run, built: Path, own_model: Path, tmp_path: Path, text: list[object]
) -> None:
    other = WordsTokenizer([*RESERVED, *"fedcba"])
    other.save(tmp_path / "other.model")
    others = tmp_path / "others"
    assert run("lattice", "build", *text, "--tokenizer", tmp_path / "other.model", "-o", others).code == 0
    error = run("lattice", "add", others, "-m", own_model).error
    assert f"expected tables for the source tokenizer {words().sha256[:12]}" in error
    assert f"found tables for the source tokenizer {other.sha256[:12]}" in error
    # And when somebody got them in there by hand.
    edit_config(built, "parts", "tables", "options", "tokenizer_sha256", value=other.sha256)
    with pytest.raises(ModelFolderError, match=f"tokenizer_sha256 expects .*{words().sha256}, found {other.sha256}"):
        longstride.load(built, device="cpu")


def test_alignments_of_any_tool_and_our_own_written_out(
    run: Run, tmp_path: Path, text: list[object], tokenizer: Path
) -> None:
    build = ["lattice", "build", *text, "--tokenizer", tokenizer]
    links = tmp_path / "links"
    assert run(*build, "-o", tmp_path / "one", "--save-alignments", links).code == 0
    assert links.read_text().split("\n")[:4] == ["0-0 1-1 2-2", "0-0 1-1", "0-0", ""]
    assert run(*build, "-o", tmp_path / "two", "--alignments", links).code == 0
    one, two = (ModelFolder(tmp_path / name) for name in ("one", "two"))
    assert one.parts["tables"].sha256 == two.parts["tables"].sha256
    assert two.config.provenance["tables"]["alignment"] == "Pharaoh file"


def test_recall_by_candidates_and_construction(run: Run, built: Path, tmp_path: Path) -> None:
    command = ["lattice", "recall", "-m", built, "-s", tmp_path / "src", "-r", tmp_path / "tgt", "--device", "cpu"]
    ran = run(*command, "--candidates", "1,3")
    lines = [line.split() for line in ran.out.strip().split("\n")]
    assert lines[0] == ["K", "tables", "shared"]
    assert [line[0] for line in lines[1:]] == ["1", "3"]
    assert lines[1][1] == "100.00%"  # the tables know the place
    assert lines[1][2] != lines[2][2] == "100.00%"  # one vocabulary for all places needs all three words
    found = json.loads(run(*command, "--candidates", "3", "--json").out)
    assert found == {"pairs": 25, "words": 55, "recall": {"tables": {"3": 1.0}, "shared": {"3": 1.0}}}


def test_recall_of_a_scorers_own_words_beside_the_tables(run: Run, built: Path, tmp_path: Path) -> None:
    scorer = tiny_scorer(dtype=torch.float32, vocabulary=words().size, longest=24)
    decoders = {"lattice": DecoderConfig({"model": "model", "tables": "tables"})}
    tables = longstride.load(built, device="cpu").part("tables")
    parts = {"model": Part("scorer", scorer.options, scorer), "tables": Part("tables", tables.options, tables)}
    model_folder.write(tmp_path / "model", parts, decoders, "lattice", words())
    text = ["-s", tmp_path / "src", "-r", tmp_path / "tgt", "--device", "cpu", "--json"]
    every = str(words().size)
    found = json.loads(run("lattice", "recall", "-m", tmp_path / "model", *text, "--candidates", f"1,{every}").out)
    assert list(found["recall"]) == ["tables", "shared", "model"]
    assert found["recall"]["model"][every] == 1.0  # the whole vocabulary
    assert found["recall"]["model"]["1"] < 1.0


def test_options_are_set_by_name(run: Run, tmp_path: Path, text: list[object], tokenizer: Path) -> None:
    build = ["lattice", "build", *text, "--tokenizer", tokenizer, "-o", tmp_path / "tables"]
    assert run(*build, "--set", "counted.keep=3", "--set", "counted.reach=2", "--set", "aligner.iterations=2").code == 0
    counted = ModelFolder(tmp_path / "tables").parts["tables"].options["counted"]
    assert counted == {"keep": 3, "reach": 2, "longest": 128, "least": 1, "fewest": 1}
    assert "counted.keep expects" in run(*build, "--set", "counted.keep=some").error
    assert "there is no option 'counted.colour'" in run(*build, "--set", "counted.colour=red").error
    assert "counted.keep expects a whole number from 1 to 255, found 0" in run(*build, "--set", "counted.keep=0").error


def test_bad_input_is_told_in_one_sentence_and_nothing_is_written(
    run: Run, tmp_path: Path, text: list[object], tokenizer: Path
) -> None:
    place = tmp_path / "tables"
    build = ["lattice", "build", *text, "--tokenizer", tokenizer, "-o", place]
    links = tmp_path / "links"
    assert "links: expected alignments in Pharaoh format, found no file" in run(*build, "--alignments", links).error
    links.write_text("0-0\n" * 29)
    assert "links: expected as many lines as the corpus has (30), found 29" in run(*build, "--alignments", links).error
    links.write_text("0-0\n0-0\n1-0\n" + "\n" * 27)
    error = run(*build, "--alignments", links).error
    assert "links, line 3: expected links between 1 source and 1 target words, counted from 0, found 1-0" in error
    assert "--memory expects at least" in run(*build, "--memory", "0").error
    (tmp_path / "tgt").write_text("d\n")
    assert "Expected as many target lines as source lines, found 30 in" in run(*build).error
    (tmp_path / "tgt").write_bytes(b"\xff\n")
    assert "tgt, line 1: expected UTF-8" in run(*build).error
    assert not place.exists()


def test_misuse_is_told_in_one_sentence(run: Run, tmp_path: Path, text: list[object], model: Path) -> None:
    build = ["lattice", "build", *text]
    assert "either --model or --tokenizer, found neither" in run(*build, "-o", tmp_path / "new").error
    assert "either --output or --drop-in, found neither" in run(*build, "-m", model).error
    assert "either --output or --drop-in, found both" in run(*build, "-m", model, "--drop-in", "-o", "x").error
    assert "--drop-in expects --model" in run(*build, "--drop-in").error
    assert "expected a new folder or one of tables alone" in run(*build, "-m", model, "-o", model).error
    assert "expected a new folder or one of tables alone" in run(*build, "-m", model, "-o", tmp_path).error
    recall = ["lattice", "recall", "-m", model, "-s", tmp_path / "src", "-r", tmp_path / "tgt"]
    assert "expected a model folder with candidate tables, found the parts model" in run(*recall).error
    assert "--candidates expects numbers from 1 to 1000000" in run(*recall, "--candidates", "1,x").error
    assert CONFIG in [path.name for path in model.iterdir()]
