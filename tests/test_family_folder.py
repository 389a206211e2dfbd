"""Several models in one folder: weights that two parts share are written once, and every decoder finds its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from longstride import model_folder
from longstride.cli.provenance import model_notes
from longstride.contract import ModelFolderError
from longstride.model_folder import DecoderConfig, ModelFolder, Part
from longstride.nn.transformer import Transformer
from longstride.translator import load
from tests.family import DECODERS, family_parts, write_family
from tests.folders import edit_config, words, write_folder

LINES = ["a b c", "d d e f a", "b"]


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models") / "family")


def test_shared_weights_are_written_once(family: Path) -> None:
    stored = {name: set(load_file(family / f"{name}.safetensors")) for name in ("model", "interleaved", "scorer")}
    assert any(key.startswith("encoder.") for key in stored["model"])
    for name in ("interleaved", "scorer"):
        assert stored[name]
        assert not [key for key in stored[name] if key.startswith(("encoder.", "target_embedding."))]
    assert "target_embedding.weight" not in load_file(family / "drafter.safetensors")
    told = json.loads((family / "config.json").read_text())["parts"]
    assert told["scorer"]["reuses"] == "model"
    assert "reuses" not in told["model"]


def test_every_part_is_read_back_to_the_bit(family: Path) -> None:
    translator = load(family, device="cpu")
    for name, part in family_parts(words()).items():
        read = translator.part(name).state_dict()
        for key, value in part.module.state_dict().items():
            stored = value.half().float() if value.is_floating_point() else value
            assert torch.equal(read[key], stored), f"{name}: {key}"


def test_every_decoder_translates_and_verified_ones_write_what_greedy_writes(family: Path) -> None:
    translator = load(family, device="cpu", precision="fp64")
    assert set(translator.decoders) == set(DECODERS)
    assert translator.decoders[0] == "blockwise"
    found = {name: [one.tokens for one in translator.translate(LINES, name)] for name in DECODERS}
    assert found["blockwise"] == found["draft-verify"] == found["greedy"]
    assert all(len(rows) == len(LINES) for rows in found.values())


def test_a_family_writes_what_its_members_write_alone(family: Path, tmp_path: Path) -> None:
    part = family_parts(words())["interleaved"]
    interleaving = family_parts(words())["interleaving"]
    parts = {"model": Part(part.kind, part.options, part.module), "interleaving": interleaving}
    decoders = {"interleaved": DecoderConfig({"model": "model", "interleaving": "interleaving"})}
    model_folder.write(tmp_path / "alone", parts, decoders, "interleaved", words(), dtype=torch.float16)
    alone, together = load(tmp_path / "alone", device="cpu"), load(family, device="cpu")
    expected = [one.tokens for one in alone.translate(LINES)]
    assert [one.tokens for one in together.translate(LINES, "interleaved")] == expected


def test_records_tell_the_parts_of_the_decoder_that_was_used(family: Path) -> None:
    translator = load(family, device="cpu")
    assert set(model_notes(translator, decoder="greedy")["parts"]) == {"model", "heads", "drafter", "shortlist"}
    lattice = model_notes(translator, decoder="lattice")["parts"]
    assert set(lattice) == {"model", "tables"}
    assert lattice["model"]["order"] == 2
    assert model_notes(translator, decoder="interleaved")["parts"]["interleaving"]["h"] == 2
    assert set(model_notes(translator)["parts"]) == set(translator.folder.parts)


@pytest.mark.parametrize("lender", ["nobody", "scorer", "interleaved"])
def test_a_lender_must_be_there_and_have_all_its_own(tmp_path: Path, lender: str) -> None:
    path = write_family(tmp_path / "family")
    edit_config(path, "parts", "interleaved", "reuses", value=lender)
    with pytest.raises(ModelFolderError, match=f"reuses expects a part that has all its own weights, found '{lender}'"):
        ModelFolder(path)


def test_what_nobody_has_is_missing_still(tmp_path: Path) -> None:
    path = write_family(tmp_path / "family")
    edit_config(path, "parts", "interleaved", "reuses", value="tables")
    options = family_parts(words())["interleaved"].options
    with pytest.raises(ModelFolderError, match="is missing"):
        ModelFolder(path).load("interleaved", lambda: Transformer(options))


def test_a_lender_is_not_replaced_under_those_who_reuse_it(tmp_path: Path) -> None:
    path = write_family(tmp_path / "family")
    parts = family_parts(words(), seed=5)
    with pytest.raises(ModelFolderError, match="found 'drafter' reusing it"):
        model_folder.drop_in(path, "model", parts["model"], {}, {})
    model_folder.drop_in(path, "tables", parts["tables"], {}, {})
    assert ModelFolder(path).parts["scorer"].reuses == "model"


def test_older_folders_have_no_such_field(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "plain")
    assert "reuses" not in (path / "config.json").read_text()
    assert ModelFolder(path).parts["model"].reuses is None
