"""One multilingual model serves several pairs: --source-lang and --target-lang, and the same in Python."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import longstride
from longstride.contract import OptionError
from longstride.text.hf_tokenizer import read_hf_tokenizers
from tests.cli.conftest import Run
from tests.folders import write_folder
from tests.text import hf_folders

pytest.importorskip("transformers")
LINE = "the house is green"


@pytest.fixture(scope="module")
def nllb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nllb")
    source = read_hf_tokenizers(hf_folders.nllb(folder / "hf"), "eng_Latn", "fra_Latn").source
    special = replace(source.special, start=source.special.eos, mask=None)
    return write_folder(folder / "model", tokenizer=source, special=special)


def test_languages_set_the_source_prefix_and_the_first_token(run: Run, nllb: Path) -> None:
    languages_told = ["--source-lang", "fra_Latn", "--target-lang", "deu_Latn"]
    found = json.loads(run("translate", "-m", nllb, "--json", *languages_told, stdin=LINE.encode()).out)
    translator = longstride.load(nllb)
    languages = translator.source_tokenizer.languages
    made = translator.with_languages("fra_Latn", "deu_Latn")
    assert made.encode([LINE])[0][0] == languages["fra_Latn"]
    assert translator.encode([LINE])[0][0] == languages["eng_Latn"]
    assert found["tokens"][0] == languages["deu_Latn"]
    assert "deu_Latn" not in found["text"]
    (again,) = translator.translate([LINE], source_lang="fra_Latn", target_lang="deu_Latn")
    assert list(again.tokens) == found["tokens"]
    assert made.part("model") is translator.part("model")
    (other,) = translator.translate([LINE], target_lang="eng_Latn", forced_first=languages["fra_Latn"])
    assert other.tokens[0] == languages["fra_Latn"]  # what the caller says counts
    assert translator.with_languages("fra_Latn").decoder()[1].forced_first is None  # as the folder says
    for decoder in translator.decoders:
        (first,) = translator.translate([LINE], decoder, target_lang="eng_Latn")
        assert first.tokens[0] == languages["eng_Latn"]


def test_an_unknown_language_is_misuse(run: Run, nllb: Path, tmp_path: Path) -> None:
    said = run("translate", "-m", nllb, "--target-lang", "de", stdin=LINE.encode()).error
    assert "target_lang expects one of" in said
    assert "deu_Latn" in said
    words = write_folder(tmp_path / "words")
    assert "language tokens" in run("translate", "-m", words, "--target-lang", "de", stdin=b"a").error


def test_mbart_begins_with_the_language_it_was_imported_with(tmp_path: Path) -> None:
    source = read_hf_tokenizers(hf_folders.mbart(tmp_path / "hf"), "en_XX", "ro_RO").source
    special = replace(source.special, start=source.languages["ro_RO"], mask=None)
    translator = longstride.load(write_folder(tmp_path / "model", tokenizer=source, special=special))
    translator.translate([LINE], source_lang="de_DE", target_lang="ro_RO")
    with pytest.raises(OptionError, match="import the model again"):
        translator.translate([LINE], target_lang="de_DE")


def test_a_line_of_another_librarys_tokenizer_is_read_as_that_library_reads_it(tmp_path: Path) -> None:
    """Characters that nobody sees stay, and a line that is too long keeps its end."""
    tokenizers = read_hf_tokenizers(hf_folders.bart(tmp_path / "hf"))
    special = replace(tokenizers.source.special, start=tokenizers.source.special.eos, mask=None)
    translator = longstride.load(write_folder(tmp_path / "model", tokenizer=tokenizers.source, special=special))
    line = "a\u200d\u2028 b"
    assert translator.encode([line]) == [tokenizers.source.encode(line)]
    said: list[str] = []
    (cut,) = translator.encode([LINE * 9], said.append)
    assert cut == [*tokenizers.source.encode(LINE * 9)[: translator.longest - 1], special.eos]
    assert said == [
        f"line 1 has {len(tokenizers.source.encode(LINE * 9))} tokens and was cut at the model's limit of 24."
    ]
    assert translator.one_vocabulary
    assert translator.translate(["", "  "])[0].text == ""


def test_a_model_with_ids_of_its_own_is_scored_and_timed(run: Run, tmp_path: Path) -> None:
    tokenizers = read_hf_tokenizers(hf_folders.bart(tmp_path / "hf"))
    special = replace(tokenizers.source.special, start=tokenizers.source.special.eos, mask=None)
    model = write_folder(tmp_path / "model", tokenizer=tokenizers.source, special=special)
    lines = tmp_path / "lines"
    lines.write_text(f"{LINE}\nthe green house\n")
    test_set, records = ["-m", model, "-s", lines, "-r", lines], tmp_path / "records.jsonl"
    found = json.loads(run("evaluate", *test_set, "--decoder", "greedy", "--json", "--record", records).out)
    assert {"BLEU", "chrF"} <= {score["name"] for score in found["scores"]}
    assert "greedy" in run("bench", *test_set, "--decoders", "greedy", "--passes", "1", "-o", records).out
