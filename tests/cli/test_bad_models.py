"""Model folders are data that is checked: whatever is wrong with one is told in one sentence that names the file."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save

from tests.cli.conftest import Run
from tests.folders import edit_config, replace_weights


def flip_a_bit(folder: Path) -> None:
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)


def cut_the_weights(folder: Path) -> None:
    replace_weights(folder, (folder / "model.safetensors").read_bytes()[:-100])


def change_a_shape(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    name = next(name for name, value in weights.items() if value.dim() == 2)
    replace_weights(folder, save({**weights, name: weights[name][:-1].clone()}))


def drop_a_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights.popitem()
    replace_weights(folder, save(weights))


def add_a_weight(folder: Path) -> None:
    replace_weights(folder, save({**load_file(folder / "model.safetensors"), "surplus": torch.zeros(1)}))


class Trap:
    """Unpickling this would create a file."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return Path.touch, (Path("trapped"),)  # type: ignore[return-value]


def pickle_the_weights(folder: Path) -> None:
    made = io.BytesIO()
    torch.save(Trap(), made)
    replace_weights(folder, made.getvalue())


def spoil_the_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.model").write_bytes(b"nothing of the kind")


CASES: list[tuple[Callable[[Path], object], list[str]]] = [
    (shutil.rmtree, ["own: expected a model folder, found nothing"]),
    (lambda folder: (folder / "config.json").unlink(), ["own: expected a model folder", "no config.json"]),
    (lambda folder: (folder / "config.json").write_text("{"), ["config.json: not valid JSON"]),
    (lambda folder: (folder / "config.json").write_bytes(b"\xff"), ["config.json: not valid JSON"]),
    (lambda folder: (folder / "config.json").write_text("[]"), ["config.json: expected a JSON object, found list"]),
    (lambda folder: edit_config(folder, "format", value=2), ["config.json: expected format 1, found 2"]),
    (lambda folder: edit_config(folder, "format", value=None), ["config.json: expected format 1, found None"]),
    (lambda folder: edit_config(folder, "extra", value=1), ["config.json: there is no option 'extra'", "tokenizer"]),
    (lambda folder: edit_config(folder, "parts", value=None), ["config.json: the option 'parts'", "required"]),
    (
        lambda folder: edit_config(folder, "parts", "model", "colour", value="red"),
        ["config.json, parts.model: there is no option 'colour'", "sha256"],
    ),
    (
        lambda folder: edit_config(folder, "parts", "model", "options", "colour", value="red"),
        ["config.json: parts.model: there is no option 'colour'", "width"],
    ),
    (
        lambda folder: edit_config(folder, "parts", "model", "options", "width", value="wide"),
        ["config.json: parts.model: width expects a whole number from 1 to 65536, found 'wide'"],
    ),
    (
        lambda folder: edit_config(folder, "parts", "model", "options", "vocabulary", value=99),
        ["config.json: parts.model: vocabulary expects the tokenizer's 25, found 99"],
    ),
    (
        lambda folder: edit_config(folder, "parts", "model", "kind", value="oracle"),
        ["config.json: There is no kind of part 'oracle'. Available:", "transformer"],
    ),
    (
        lambda folder: edit_config(folder, "decoders", "guess", value={"parts": {"model": "model"}}),
        ["config.json: There is no decoder 'guess'. Available:", "greedy"],
    ),
    (
        lambda folder: edit_config(folder, "decoders", "beam", "parts", value={}),
        ["config.json: decoders.beam: parts expects model, found none"],
    ),
    (
        lambda folder: edit_config(folder, "decoders", "beam", "parts", "model", value="ghost"),
        ["config.json: decoder 'beam' expects a part 'ghost' as its model; the parts are model"],
    ),
    (
        lambda folder: edit_config(folder, "decoders", "greedy", "defaults", value={"widht": 3}),
        ["config.json: The decoder greedy has no option 'widht'"],
    ),
    (
        lambda folder: edit_config(folder, "default_decoder", value="ghost"),
        ["config.json: default_decoder is 'ghost'; the decoders are greedy, beam"],
    ),
    (
        lambda folder: edit_config(folder, "parts", "model", "weights", value="../model.safetensors"),
        ["config.json: expected a plain file name, found '../model.safetensors'"],
    ),
    (
        lambda folder: edit_config(folder, "parts", "model", "sha256", value="0" * 64),
        ["model.safetensors: the file is corrupt or was replaced", "expects sha256 000000000000"],
    ),
    (lambda folder: (folder / "model.safetensors").unlink(), ["model.safetensors: the file is missing"]),
    (flip_a_bit, ["model.safetensors: the file is corrupt or was replaced"]),
    (cut_the_weights, ["model.safetensors: not a safetensors file"]),
    (change_a_shape, ["model.safetensors: the weight", "wrong shape: expected [", "found ["]),
    (drop_a_weight, ["model.safetensors: the weight", "is missing"]),
    (add_a_weight, ["model.safetensors: found a weight 'surplus'"]),
    (pickle_the_weights, ["model.safetensors: not a safetensors file"]),
    (spoil_the_tokenizer, ["tokenizer.model: the file is corrupt or was replaced"]),
    (lambda folder: (folder / "tokenizer.model").unlink(), ["tokenizer.model: the file is missing"]),
]


@pytest.mark.parametrize(("spoil", "told"), CASES, ids=[case[1][0].replace(" ", "-")[:70] for case in CASES])
def test_a_spoilt_folder_is_refused(
    run: Run,
    own_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path], object],
    told: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    spoil(own_model)
    error = run("translate", "-m", "own", "-o", "out", stdin=b"a b\n").error
    assert [part for part in told if part not in error] == []
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "trapped").exists()


def test_a_decoder_is_looked_into_when_it_is_asked_for(run: Run, own_model: Path) -> None:
    """Its system would have to be imported for it; `decoders` asks for all."""
    edit_config(own_model, "decoders", "beam", "defaults", value={"widht": 3})
    assert run("translate", "-m", own_model, stdin=b"a b\n").code == 0
    told = "config.json: The decoder beam has no option 'widht'"
    assert told in run("translate", "-m", own_model, "--decoder", "beam", stdin=b"a b\n").error
    assert told in run("decoders", "-m", own_model).error


def test_a_file_is_no_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file: expected a model folder, found a file" in run("decoders", "-m", tmp_path / "file").error


def test_no_field_of_the_configuration_can_break_more_than_the_folder(run: Run, own_model: Path) -> None:
    """Every value of config.json, however deep, replaced by every kind of wrong value: never a traceback."""
    file = own_model / "config.json"
    whole = file.read_text()

    def places(value: object, keys: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        inner = value.items() if isinstance(value, dict) and "provenance" not in keys else ()
        return [keys, *(place for name, item in inner for place in places(item, (*keys, name)))]

    found = [place for place in places(json.loads(whole)) if place]
    assert len(found) > 25
    for keys in found:
        for wrong in (-7, "wrong", [["x"]], {"x": {}}):
            file.write_text(whole)
            edit_config(own_model, *keys, value=wrong)
            ran = run("translate", "-m", own_model, "--set", "max_length=2", stdin=b"a b\n")
            assert ran.code in (0, 2), (keys, wrong, ran)
            if ran.code == 2:
                assert ran.error
