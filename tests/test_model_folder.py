"""Model folders: written whole, read back to the bit, never half-replaced."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from longstride import model_folder
from longstride.contract import ModelFolderError, WorkError
from longstride.model_folder import DecoderConfig, ModelFolder, Part, resolve
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


# --- killed in the middle --------------------------------------------------------------------------------------------


def killed(act: Callable[[], object], before: int) -> int:
    """Carry something out in a process that is killed before its n-th rename; how many renames there were."""
    if (child := os.fork()) == 0:
        count, replace = 0, os.replace

        def counted(*arguments: Any) -> None:
            nonlocal count
            if count == before:
                os._exit(100)
            count += 1
            replace(*arguments)

        os.replace = counted
        act()
        os._exit(count)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def age(folder: Path) -> None:
    """As if nobody had touched what is hidden for a day."""
    for path in folder.iterdir():
        if path.name.startswith("."):
            os.utime(path, (time.time() - 86_400,) * 2)


@pytest.mark.parametrize("moment", range(4))
@pytest.mark.parametrize("then", ["load", "write"])
def test_whoever_is_killed_while_replacing_leaves_the_old_or_the_new(tmp_path: Path, moment: int, then: str) -> None:
    one, two = (ModelFolder(write_folder(tmp_path / "only" / str(seed), seed=seed)).sha256 for seed in (1, 2))
    place = tmp_path / "models"
    path = write_folder(place / "model", seed=1)
    killed(lambda: write_folder(path, seed=2), moment)
    if then == "load":
        assert ModelFolder(path).sha256 in (one, two)
        return
    age(place)
    write_folder(path, seed=2)
    assert ModelFolder(path).sha256 == two
    assert [file.name for file in place.iterdir()] == ["model"]


def test_every_moment_is_tried(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "model", seed=1)
    assert killed(lambda: write_folder(path, seed=2), 99) == 3, "tokenizer.model, the old away, the new in"


def test_a_run_finds_its_model_again(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "run" / "model")
    os.mkdir(tmp_path / "run" / ".model-old-abcdefgh")
    os.rename(path, tmp_path / "run" / ".model-old-abcdefgh" / "was")
    assert ModelFolder(resolve(str(tmp_path / "run"))).path == path


@pytest.mark.parametrize("moment", range(3))
def test_whoever_is_killed_while_dropping_in_leaves_nothing_for_long(tmp_path: Path, moment: int) -> None:
    path = write_folder(tmp_path / "model", seed=1)
    parts = {seed: tiny_model(seed, torch.float32, vocabulary=words().size, longest=LONGEST) for seed in (1, 2, 3)}

    def drop(seed: int) -> None:
        model_folder.drop_in(path, "model", Part("transformer", parts[seed].options, parts[seed]), {}, {})

    drop(2)
    killed(lambda: drop(3), moment)
    assert ModelFolder(path).load("model", fresh) is not None
    age(path)
    drop(3)
    assert len(list(path.iterdir())) == 3
    read = ModelFolder(path).load("model", fresh).state_dict()
    assert all(torch.equal(value, read[name]) for name, value in parts[3].state_dict().items())


@pytest.mark.parametrize("victim", ["../precious.safetensors", "config.json", "tokenizer.model", "other.safetensors"])
def test_dropping_in_removes_weights_of_that_part_alone(tmp_path: Path, victim: str) -> None:
    """What config.json calls a part's weights may be somebody else's file."""
    path = write_folder(tmp_path / "model")
    (tmp_path / "precious.safetensors").write_text("precious")
    shutil.copy(path / "model.safetensors", path / "other.safetensors")
    config = json.loads((path / "config.json").read_text())
    config["parts"]["other"] = {**config["parts"]["model"], "weights": "other.safetensors"}
    config["parts"]["model"]["weights"] = victim
    (path / "config.json").write_text(json.dumps(config))
    before = {file: file.read_bytes() for file in (tmp_path / "precious.safetensors", path / "tokenizer.model")}
    model = tiny_model(3, torch.float32, vocabulary=words().size, longest=LONGEST)
    with contextlib.suppress(ModelFolderError):
        model_folder.drop_in(path, "model", Part("transformer", model.options, model), {}, {})
    assert {file: file.read_bytes() for file in before} == before
    assert (path / "config.json").exists()
    assert (path / "other.safetensors").exists()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_dropping_in_leaves_links_to_what_others_share(tmp_path: Path, name: str) -> None:
    path = write_folder(tmp_path / "model")
    (path / name).rename(tmp_path / "shared")
    (path / name).symlink_to(tmp_path / "shared")
    model = tiny_model(3, torch.float32, vocabulary=words().size, longest=LONGEST)
    before = sorted(path.iterdir())
    with pytest.raises(ModelFolderError, match=f"{name}: expected a file of the folder's own to replace, found a link"):
        model_folder.drop_in(path, "model", Part("transformer", model.options, model), {}, {})
    assert ((path / name).is_symlink(), sorted(path.iterdir())) == (True, before)


def test_a_folder_of_hugging_face_is_told_what_makes_a_model_folder_of_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "marian"}')
    with pytest.raises(ModelFolderError, match=f"`longstride import {tmp_path} -o DIR` makes a model folder of it"):
        ModelFolder(tmp_path)


def test_a_path_with_spaces_is_quoted_in_what_makes_a_model_folder_of_it(tmp_path: Path) -> None:
    (tmp_path / "my model").mkdir()
    (tmp_path / "my model" / "config.json").write_text('{"model_type": "marian"}')
    with pytest.raises(ModelFolderError, match=f"`longstride import '{tmp_path / 'my model'}' -o DIR` makes"):
        ModelFolder(tmp_path / "my model")


@pytest.mark.parametrize(
    ("files", "whose"),
    [({"config.json": "{}", "model.bin": ""}, "CTranslate2"), ({"manifest.json": "{}"}, "ONNX Runtime")],
)
def test_a_folder_for_another_program_is_told_as_such(tmp_path: Path, files: dict[str, str], whose: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(ModelFolderError, match=f"expected a model folder, found one for {whose}; name the one that it"):
        ModelFolder(tmp_path)


def test_only_model_folders_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("precious")
    for name in ("file", "folder"):
        with pytest.raises(ModelFolderError, match="expected a model folder to replace, or none, found something else"):
            write_folder(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    real = write_folder(tmp_path / "real", seed=1)
    (tmp_path / "link").symlink_to(real)
    write_folder(tmp_path / "link", seed=2)
    assert (tmp_path / "link").is_symlink()
    assert ModelFolder(real).sha256 == ModelFolder(write_folder(tmp_path / "other", seed=2)).sha256


def test_weights_that_are_not_finite_are_not_written(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "model")
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    model = tiny_model(3, torch.float32, vocabulary=words().size)
    decoders = {"greedy": DecoderConfig({"model": "model"})}
    with torch.no_grad():
        model.target_embedding.weight[3, 1] = 1e6  # too large for half precision alone
    part = Part("transformer", model.options, model)
    with pytest.raises(
        WorkError, match=r"expected finite weights to write, found others in 'target_embedding\.weight'"
    ):
        model_folder.write(path, {"model": part}, decoders, "greedy", words(), dtype=torch.float16)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    model_folder.write(path, {"model": part}, decoders, "greedy", words())


def test_scores_that_are_no_numbers_are_written_as_json_has_them(tmp_path: Path) -> None:
    model = tiny_model(3, torch.float32, vocabulary=words().size)
    part = Part("transformer", model.options, model)
    decoders = {"greedy": DecoderConfig({"model": "model"})}
    told = {"validation": {"loss": float("nan")}}
    model_folder.write(tmp_path / "model", {"model": part}, decoders, "greedy", words(), provenance=told)
    assert ModelFolder(tmp_path / "model").config.provenance == {"validation": {"loss": None}}
