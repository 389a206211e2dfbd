"""longstride import with tokenizers of each family: text in, the text and tokens of transformers out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import longstride
from longstride.interop.hf import check, export_hf
from longstride.runtime import libraries
from longstride.runtime.libraries import MissingPackageError
from longstride.translator import load
from tests.cli.conftest import Run, run
from tests.interop.hf_models import build, saved
from tests.text import hf_folders

__all__ = ["run"]

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:Recommended")  # sacremoses, which transformers 5 does not use

LANGUAGES = {"m2m100": ("en", "de"), "nllb": ("eng_Latn", "deu_Latn"), "mbart": ("en_XX", "de_DE"),
             "mbart50": ("en_XX", "de_DE")}  # fmt: skip
MODELS = {"nllb": "m2m100"}
LINES = ["the house is green and we walk home", "grün Haus", "3.14 (yes) don't", "we walk quickly, Straße über Öl!"]


def make(family: str, folder: Path) -> Path:
    """A tokenizer of its family with a random model of the same."""
    getattr(hf_folders, family)(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    codes = getattr(tokenizer, "lang_token_to_id", {}).values()
    size, eos, pad = max(len(tokenizer), 1, *codes) + 3, tokenizer.eos_token_id, tokenizer.pad_token_id  # often more
    ids: dict[str, Any] = {"vocab_size": size, "eos_token_id": eos, "pad_token_id": pad, "decoder_start_token_id": pad}
    if family in ("m2m100", "nllb", "mbart50", "bart"):
        ids["decoder_start_token_id"] = eos
    if family == "bart":
        ids["forced_bos_token_id"] = tokenizer.bos_token_id
    if family in LANGUAGES:
        ids["forced_bos_token_id"] = None
    model = build(MODELS.get(family, family), bad_words_ids=None, suppress_tokens=None, **ids)
    if model.generation_config.forced_eos_token_id is not None:
        model.generation_config.forced_eos_token_id = eos
    return saved(model, folder)


@pytest.fixture(scope="module", params=["marian", "m2m100", "nllb", "bart", "t5", "pegasus", "mbart", "mbart50"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One family's folder, whole."""
    return make(request.param, tmp_path_factory.mktemp("whole") / request.param)


@pytest.fixture
def marian(tmp_path: Path) -> Path:
    """A folder to spoil."""
    return make("marian", tmp_path / "marian")


def test_an_import_is_checked_and_translates_as_transformers_does(run: Run, folder: Path, tmp_path: Path) -> None:
    source, target = LANGUAGES.get(folder.name, (None, None))
    languages = ["--source-lang", source, "--target-lang", target] if source else []
    ran = run("import", folder, "-o", tmp_path / "ours", *languages)
    assert ran.code == 0, ran.err
    assert ran.out.startswith("The outputs of transformers ")
    assert "are the same, token by token: 8 sentences" in ran.out
    named = {"src_lang": source, "tgt_lang": target} if source else {}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, **named)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True).eval()
    forced = {}
    if folder.name == "mbart":
        forced["decoder_start_token_id"] = tokenizer.convert_tokens_to_ids(target)
    elif source:
        forced["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids("__de__" if folder.name == "m2m100" else target)
    batch = tokenizer(LINES, return_tensors="pt", padding=True)
    expected = model.generate(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], num_beams=1, do_sample=False, **forced
    )
    texts = tokenizer.batch_decode(expected, skip_special_tokens=True)
    translator = load(tmp_path / "ours", device="cpu")
    found = translator.translate(LINES)
    eos = translator.folder.special.eos
    rows = [row[1:] for row in expected.tolist()]
    assert [list(one.tokens) for one in found] == [row[: row.index(eos)] if eos in row else row for row in rows]
    if folder.name != "m2m100":  # whose language tokens transformers 5 does not leave out
        assert [one.text for one in found] == [text.replace("\n", " ") for text in texts]
    (tmp_path / "out").mkdir()
    export_hf(translator, tmp_path / "out")
    files = {file.name for file in folder.iterdir()}
    assert {file.name for file in (tmp_path / "out").iterdir()} == files
    for name in files - {"model.safetensors"}:
        assert (folder / name).read_bytes() == (tmp_path / "out" / name).read_bytes(), name
    before, after = (load_file(one / "model.safetensors") for one in (folder, tmp_path / "out"))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_model_without_a_row_for_the_tokenizers_last_special_token(run: Run, tmp_path: Path) -> None:
    """bart-large-cnn is published so: <mask> is one id more than the model has."""
    folder = make("bart", tmp_path / "bart")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    last = max(len(tokenizer["model"]["vocab"]), *(each["id"] + 1 for each in tokenizer["added_tokens"]))
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": last, "content": "<mask_2>"})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    model = build("bart", vocab_size=last, eos_token_id=2, pad_token_id=1, decoder_start_token_id=2,
                  forced_bos_token_id=0, forced_eos_token_id=2, num_beams=3)  # fmt: skip
    saved(model, folder)
    ran = run("import", folder, "-o", tmp_path / "ours")
    assert "the same, token by token" in ran.out, ran.err
    theirs = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert len(theirs) == last + 1
    batch = theirs(LINES, return_tensors="pt", padding=True)
    rows = model.generate(batch["input_ids"], attention_mask=batch["attention_mask"]).tolist()
    translator = load(tmp_path / "ours", device="cpu")
    found = [list(one.tokens) for one in translator.translate(LINES)]
    assert found == [row[1 : row.index(2, 1)] if 2 in row[1:] else row[1:] for row in rows]
    (tmp_path / "out").mkdir()
    export_hf(translator, tmp_path / "out")
    before, after = (load_file(one / "model.safetensors") for one in (folder, tmp_path / "out"))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_from_transformers_gives_what_load_gives(folder: Path) -> None:
    if folder.name in LANGUAGES:
        pytest.skip("languages are told to the import")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True).eval()
    translator = longstride.from_transformers(model, tokenizer, device="cpu")
    rows = model.generate(**tokenizer(LINES[0], return_tensors="pt"), num_beams=1, do_sample=False)
    assert translator.translate(LINES[0]) == tokenizer.decode(rows[0], skip_special_tokens=True)
    home = translator.folder.path
    assert home.is_dir()
    del translator
    assert not home.exists()


def test_a_difference_is_shown_and_nothing_is_written(
    run: Run, marian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = check.generated

    def other(*arguments: Any) -> list[list[int]]:
        rows = asked(*arguments)
        return [rows[0], [*rows[1][:2], 5, *rows[1][3:]], *rows[2:]]

    monkeypatch.setattr(check, "generated", other)
    ran = run("import", marian, "-o", tmp_path / "ours")
    assert "Other outputs than those of transformers" in ran.failure
    assert "sentence 2, token 3: " in ran.failure
    assert "its two best logits are " in ran.failure
    assert {path.name for path in tmp_path.iterdir()} == {"marian"}


def test_without_the_library(run: Run, marian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise MissingPackageError(f"This expects the package {name}.")

    monkeypatch.setattr(libraries, "package", missing)
    said = run("import", marian, "-o", tmp_path / "ours").error
    assert said == ("error: This expects the package transformers. Or import without comparing outputs: --unchecked.")
    ran = run("import", marian, "-o", tmp_path / "ours", "--unchecked")
    assert (ran.code, ran.out) == (0, "")
    assert "Marian, imported to" in ran.err


def test_what_is_there_is_replaced_only_if_it_is_a_model_folder(run: Run, marian: Path, tmp_path: Path) -> None:
    before = sorted((file.name, file.read_bytes()) for file in marian.iterdir())
    assert "expected a model folder to replace, or none" in run("import", marian, "-o", marian).error
    assert sorted((file.name, file.read_bytes()) for file in marian.iterdir()) == before
    for _ in range(2):
        assert run("import", marian, "-o", tmp_path / "ours", "--unchecked").code == 0


def test_lines_to_check_with(run: Run, marian: Path, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("the house\n\nwe walk home\n")
    ran = run("import", marian, "-o", tmp_path / "ours", "--check-lines", tmp_path / "lines")
    assert "2 sentences" in ran.out
    (tmp_path / "none").write_text("\n")
    said = run("import", marian, "-o", tmp_path / "other", "--check-lines", tmp_path / "none").error
    assert "expected at least one sentence to check with" in said


def test_code_that_comes_with_a_tokenizer_is_refused(run: Run, marian: Path, tmp_path: Path) -> None:
    file = marian / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "auto_map": {"AutoTokenizer": ["mine.Mine", None]}}))
    assert "code of its own" in run("import", marian, "-o", tmp_path / "ours").error


def test_a_broken_weight_is_refused_whole(run: Run, marian: Path, tmp_path: Path) -> None:
    state = load_file(marian / "model.safetensors")
    state["model.encoder.layers.0.fc1.bias"][0] = float("nan")
    save_file(state, marian / "model.safetensors")
    assert "expected finite numbers" in run("import", marian, "-o", tmp_path / "ours").error
    assert not (tmp_path / "ours").exists()
