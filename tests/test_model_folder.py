"""Model folders: written whole, read back to the bit, never half-replaced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from longstride import model_folder
from longstride.contract import ModelFolderError
from longstride.model_folder import DecoderConfig, ModelFolder, Part
from longstride.nn.transformer import Transformer
from longstride.text.tokenizer import WordsTokenizer
from tests.folders import LONGEST, edit_config, words, write_folder
from tests.models import tiny_model, tiny_options


def fresh(**changes: object) -> Transformer:
    return Transformer(tiny_options(vocabulary=words().size, longest=LONGEST, **changes))


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    model = tiny_model(3, torch.float32, vocabulary=words().size, longest=LONGEST)
    folder = ModelFolder(write_folder(tmp_path / "model", seed=3))
    read = folder.load("model", fresh)
    assert all(torch.equal(value, read.state_dict()[name]) for name, value in model.state_dict().items())
    assert folder.tokenizers()[0].serialized == words().serialized
    assert folder.config.provenance == {"recipe": {"name": "tiny"}}


def test_weights_can_be_stored_in_half_precision(tmp_path: Path) -> None:
    model = tiny_model(3, torch.float32, vocabulary=words().size)
    part = Part("transformer", model.options, model)
    decoders = {"greedy": DecoderConfig({"model": "model"})}
    model_folder.write(tmp_path / "half", {"model": part}, decoders, "greedy", words(), dtype=torch.float16)
    model_folder.write(tmp_path / "full", {"model": part}, decoders, "greedy", words())
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("half", "full")]
    assert sizes[0] < 0.6 * sizes[1]
    read = ModelFolder(tmp_path / "half").load("model", lambda: Transformer(model.options))
    assert all(torch.equal(value.half().float(), read.state_dict()[name]) for name, value in model.state_dict().items())


def test_a_source_tokenizer_of_its_own_is_kept(tmp_path: Path) -> None:
    source = WordsTokenizer([*words()._words, "extra"])
    model = tiny_model(vocabulary=words().size, source_vocabulary=source.size, tie="target")
    part = Part("transformer", model.options, model)
    decoders = {"greedy": DecoderConfig({"model": "model"})}
    model_folder.write(tmp_path / "two", {"model": part}, decoders, "greedy", words(), source_tokenizer=source)
    read_source, read_target = ModelFolder(tmp_path / "two").tokenizers()
    assert (read_source.size, read_target.size) == (source.size, words().size)


def test_writing_replaces_a_folder_whole(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "model", seed=1)
    (path / "left-over").write_text("")
    first = ModelFolder(path).sha256
    write_folder(path, seed=2)
    assert ModelFolder(path).sha256 != first
    assert sorted(file.name for file in path.iterdir()) == ["config.json", "model.safetensors", "tokenizer.model"]
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_a_failed_write_leaves_the_old_folder_and_nothing_else(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "model", seed=1)
    before = {file.name: file.read_bytes() for file in path.iterdir()}

    class Broken(nn.Module):
        def state_dict(self, *args: object, **kwargs: object) -> dict[str, torch.Tensor]:  # type: ignore[override]
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        model_folder.write(path, {"model": Part("transformer", tiny_options(), Broken())}, {}, "greedy", words())
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_the_hash_follows_weights_and_tokenizer_and_nothing_else(tmp_path: Path) -> None:
    first = ModelFolder(write_folder(tmp_path / "a", seed=1))
    again = write_folder(tmp_path / "b", seed=1)
    edit_config(again, "provenance", value={"note": "another machine"})
    assert ModelFolder(again).sha256 == first.sha256
    assert ModelFolder(write_folder(tmp_path / "c", seed=2)).sha256 != first.sha256


def test_a_part_of_another_size_is_refused(tmp_path: Path) -> None:
    folder = ModelFolder(write_folder(tmp_path / "model"))
    with pytest.raises(ModelFolderError, match=r"model\.safetensors: .*wrong shape: expected \[32\], found \[16\]"):
        folder.load("model", lambda: fresh(width=32))


def test_the_configuration_is_plain_json_that_says_its_format(tmp_path: Path) -> None:
    config = json.loads((write_folder(tmp_path / "model") / "config.json").read_text())
    assert config["format"] == model_folder.FORMAT
    assert list(config["parts"]["model"]) == ["kind", "options", "weights", "sha256"]
