"""Folders made to do harm, or by chance: one loads and translates or is refused in a sentence, in bounded memory."""

from __future__ import annotations

import json
import os
import shutil
import struct
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save

from longstride.contract import LongstrideError, ModelFolderError, WorkError
from longstride.model_folder import CONFIG, ModelFolder
from longstride.nn.weights import read_header, write_tensors
from longstride.registry import part_builder
from longstride.text.files import file_sha256
from longstride.translator import load
from tests.family import DECODERS, write_family
from tests.folders import edit_config, replace_weights, write_folder

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.sampled_from([2**20, 10**6, 10**9, 2**31, 2**63, 10**30, -(2**63), -1]),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(
        ["model", "tables", "scorer", "transformer", "drafter", "model.safetensors", "config.json", "../x"]
    ),
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner))


def places(value: Any, keys: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The way to every value within, provenance aside."""
    inner = value.items() if isinstance(value, dict) and keys != ("provenance",) else ()
    return [*([keys] if keys else []), *(place for name, item in inner for place in places(item, (*keys, name)))]


def at(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = value[key]
    return value


def rehashed(folder: Path) -> None:
    """Let config.json expect the files as they are, wherever it still names some."""
    config = json.loads((folder / CONFIG).read_text())
    for part in config["parts"].values():
        part["sha256"] = file_sha256(folder / part["weights"])
    config["tokenizer_sha256"] = file_sha256(folder / config["tokenizer"])
    (folder / CONFIG).write_text(json.dumps(config))


def translates_or_refuses(folder: Path, decoders: list[str]) -> None:
    for decoder in decoders:
        try:
            with warnings.catch_warnings(action="ignore"):  # of lines that are cut, where positions are few
                load(folder, device="cpu").translate("a b c", decoder, max_length=6)
        except LongstrideError:
            continue


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("hostile") / "family")


def copied(folder: Path) -> Path:
    """A copy beside the original, the same place each time."""
    to = folder.with_name("copy")
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    return to


@settings(max_examples=50)
@given(data=st.data())
def test_no_edit_of_the_configuration_does_more_than_be_refused(family: Path, data: st.DataObject) -> None:
    folder = copied(family)
    config = json.loads((folder / CONFIG).read_text())
    for _ in range(data.draw(st.integers(1, 3))):
        keys = data.draw(st.sampled_from(places(config)))
        inside = at(config, keys[:-1])
        match data.draw(st.sampled_from(["replace", "replace", "delete", "copy", "nest"])):
            case "replace":
                inside[keys[-1]] = data.draw(JSON)
            case "delete":
                del inside[keys[-1]]
            case "copy":
                inside[data.draw(st.sampled_from([*inside, "new"]))] = inside[keys[-1]]
            case "nest":
                inside[keys[-1]] = {keys[-1]: inside[keys[-1]]}
    (folder / CONFIG).write_text(json.dumps(config))
    translates_or_refuses(folder, [data.draw(st.sampled_from(list(DECODERS)))])


@settings(max_examples=50)
@given(data=st.data())
def test_no_edit_of_a_file_does_more_than_be_refused(family: Path, data: st.DataObject) -> None:
    folder = copied(family)
    file = data.draw(st.sampled_from(sorted(path for path in folder.iterdir() if path.name != CONFIG)))
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, max(0, min(len(content) - 1, 400))) | st.integers(0, max(0, len(content) - 1)))
        new = data.draw(st.binary(max_size=9))
        content[place : place + data.draw(st.sampled_from([0, len(new), 4, 1000]))] = new
    file.write_bytes(content)
    rehashed(folder)
    needing = [name for name, roles in DECODERS.items() if file.stem in roles.values()] or ["greedy"]
    translates_or_refuses(folder, needing[:2])


# --- one by one ------------------------------------------------------------------------------------------------------

HUGE = {
    "width": ({"width": 2**16}, "wrong shape"),
    "width-beyond": ({"width": 2**20}, "width expects a whole number from 1 to 65536, found 1048576"),
    "layers": ({"encoder_layers": 200}, "the part's options ask for more weights than the file has"),
    "layers-beyond": ({"encoder_layers": 10**6}, "encoder_layers expects a whole number from 1 to 1000"),
    "longest": ({"longest": 10**9}, "longest"),
    "learned": ({"longest": 2**20, "positions": "learned"}, "missing"),
    "heads": ({"width": 2**40, "heads": 2**39}, "model"),
    "beyond-numbers": ({"feed_forward": 2**63}, "model"),
    "far-beyond": ({"feed_forward": 10**40}, "model"),
}


@pytest.mark.parametrize("case", HUGE)
def test_options_that_the_weights_do_not_have_take_no_memory(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is built but on the meta device, whatever the options ask for."""
    folder = write_folder(tmp_path / "model")
    changes, told = HUGE[case]
    for name, value in changes.items():
        edit_config(folder, "parts", "model", "options", name, value=value)
    built: list[torch.device] = []
    plain = torch.nn.Module.register_parameter

    def noted(self: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
        if parameter is not None:
            built.append(parameter.device)
        plain(self, name, parameter)

    monkeypatch.setattr(torch.nn.Module, "register_parameter", noted)
    tracemalloc.start()
    try:
        with pytest.raises(LongstrideError, match=told):
            load(folder, device="cpu").translate("a b")
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
    finally:
        tracemalloc.stop()
    assert {device.type for device in built} <= {"meta"}
    assert len(built) < 1000


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_weights_are_finite_or_refused(tmp_path: Path, value: float, dtype: torch.dtype) -> None:
    folder = write_folder(tmp_path / "model")
    weights = {name: tensor.to(dtype) for name, tensor in load_file(folder / "model.safetensors").items()}
    name = sorted(weights)[3]
    weights[name].view(-1)[-1] = value
    replace_weights(folder, save(weights))
    with pytest.raises(ModelFolderError, match=f"expected finite numbers, found others in the weight '{name}'"):
        load(folder, device="cpu").translate("a b")


def test_weights_too_large_for_single_precision_are_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    weights = {name: tensor.double() for name, tensor in load_file(folder / "model.safetensors").items()}
    weights["target_embedding.weight"][7, 3] = 1e300
    replace_weights(folder, save(weights))
    with pytest.raises(ModelFolderError, match=r"found others in the weight 'target_embedding\.weight'"):
        load(folder, device="cpu").translate("a b")


def test_large_weights_are_no_infinite_ones(tmp_path: Path) -> None:
    """Their sum is; each of them is not."""
    folder = write_folder(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights["target_embedding.weight"].fill_(3e38)
    replace_weights(folder, save(weights))
    opened = ModelFolder(folder)
    opened.load("model", part_builder(opened, "model"))


def test_weights_that_are_no_file_are_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "model.safetensors"
    os.mkfifo(pipe)
    for path, found in ((pipe, "none"), (tmp_path / "no", "nothing"), (tmp_path, "none")):
        with pytest.raises(ModelFolderError, match=f"expected a safetensors file, found {found}"):
            read_header(path)


def test_weights_that_cannot_be_written_are_said(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="the weights could not be written"):
        write_tensors({"w": torch.zeros(3)}, tmp_path / "no" / "model.safetensors")


def test_types_must_fit(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    weights = {name: tensor.to(torch.int32) for name, tensor in load_file(folder / "model.safetensors").items()}
    replace_weights(folder, save(weights))
    with pytest.raises(ModelFolderError, match="has the wrong type: expected one of F64, F32, F16, BF16, found I32"):
        load(folder, device="cpu").translate("a b")


def test_a_part_of_another_kind_plays_no_role(family: Path) -> None:
    folder = copied(family)
    whole = (folder / CONFIG).read_text()
    kinds = {name: part.kind for name, part in ModelFolder(folder).parts.items()}
    for decoder, roles in DECODERS.items():
        for role, own in roles.items():
            for part in (name for name in kinds if kinds[name] != kinds[own]):
                (folder / CONFIG).write_text(whole)
                edit_config(folder, "decoders", decoder, "parts", role, value=part)
                told = f"decoders.{decoder}: {role} expects a part of kind {kinds[own]}, found {kinds[part]}"
                with pytest.raises(ModelFolderError, match=told):
                    load(folder, device="cpu")


def header(folder: Path, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The weights with another header, whose length is told rightly."""
    content = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    values = json.loads(content[8 : 8 + size])
    change(values)
    made = json.dumps(values).encode()
    return struct.pack("<Q", len(made)) + made + content[8 + size :]


def first(values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(value for name, value in values.items() if name != "__metadata__")
    return found


HEADERS: dict[str, Callable[[Path], bytes]] = {
    "length-beyond-the-file": lambda folder: (
        struct.pack("<Q", 1 << 62) + (folder / "model.safetensors").read_bytes()[8:]
    ),
    "length-nought": lambda folder: struct.pack("<Q", 0) + (folder / "model.safetensors").read_bytes()[8:],
    "empty": lambda folder: b"",
    "offsets-beyond": lambda folder: header(folder, lambda values: first(values).update(data_offsets=[0, 1 << 60])),
    "offsets-backwards": lambda folder: header(folder, lambda values: first(values).update(data_offsets=[64, 0])),
    "offsets-overlap": lambda folder: header(folder, lambda values: first(values).update(data_offsets=[4, 68])),
    "shape-beyond": lambda folder: header(folder, lambda values: first(values).update(shape=[1 << 62, 1 << 62])),
    "shape-less": lambda folder: header(folder, lambda values: first(values).update(shape=[-1])),
    "type-none": lambda folder: header(folder, lambda values: first(values).update(dtype="F31")),
    "deep": lambda folder: struct.pack("<Q", 200_000) + b"[" * 200_000,
}


@pytest.mark.parametrize("case", HEADERS)
def test_headers_that_lie_are_refused(tmp_path: Path, case: str) -> None:
    folder = write_folder(tmp_path / "model")
    replace_weights(folder, HEADERS[case](folder))
    with pytest.raises(ModelFolderError, match=r"model\.safetensors: not a safetensors file"):
        load(folder, device="cpu").translate("a b")


CONFIGS: dict[str, Callable[[str], str]] = {
    "deep": lambda text: text.replace('"tiny"', "[" * 100_000 + "]" * 100_000),
    "deep-yet-read": lambda text: text.replace('"tiny"', "[" * 200 + "]" * 200),
    "large": lambda text: text.replace('"tiny"', '"' + "x" * (1 << 25) + '"'),
    "digits": lambda text: text.replace('"width": 16', '"width": ' + "9" * 5000),
    "twice": lambda text: text.replace('"format": 1,', '"format": 1, "format": 1,'),
    "nan": lambda text: text.replace('"width": 16', '"width": NaN'),
    "infinite": lambda text: text.replace('"width": 16', '"width": 1e999'),
    "dotted": lambda text: text.replace('"width"', '"' + "a." * 5000 + 'a"'),
    "surrogate": lambda text: text.replace('"model.safetensors"', '"\\ud800"'),
    "nul": lambda text: text.replace('"model.safetensors"', '"\\u0000"'),
    "long-name": lambda text: text.replace('"model.safetensors"', '"' + "x" * 5000 + '"'),
    "no-name": lambda text: text.replace('"model.safetensors"', '""'),
    "the-folder": lambda text: text.replace('"model.safetensors"', '"."'),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_configurations_beyond_reason_are_refused(tmp_path: Path, case: str) -> None:
    file = write_folder(tmp_path / "model") / CONFIG
    text = file.read_text()
    file.write_text(CONFIGS[case](text))
    assert file.read_text() != text
    with pytest.raises(ModelFolderError, match=r"config\.json: ") as refused:
        load(tmp_path / "model", device="cpu")
    assert len(str(refused.value)) < 6000


def test_figures_that_are_no_numbers_are_no_obstacle(tmp_path: Path) -> None:
    """Folders of earlier versions may say of a validation that its loss was NaN; new ones say null."""
    folder = write_folder(tmp_path / "model")
    file = folder / CONFIG
    file.write_text(file.read_text().replace('"tiny"', "NaN"))
    assert load(folder, device="cpu").translate("a b") is not None


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("first", 1 << 30, "first expects numbers of 0 to"),
        ("words", 500, "words expects numbers of 0 to 24, found 500"),
        ("size", 200, "size expects numbers of 0 to 4, found 200"),
        ("total", -1, "total expects numbers of 0 or more, found -1"),
    ],
)
def test_tables_point_to_what_they_have(family: Path, name: str, value: int, told: str) -> None:
    folder = copied(family)
    tables = load_file(folder / "tables.safetensors")
    tables[name][:] = value
    (folder / "tables.safetensors").write_bytes(save(tables))
    rehashed(folder)
    with pytest.raises(ModelFolderError, match=f"tables.safetensors: {told}"):
        load(folder, device="cpu").translate("a b c", "lattice")


def test_a_source_vocabulary_larger_than_its_table_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    text = (folder / "tokenizer.model").read_text()
    (folder / "source.model").write_text(text + "more\nwords\n")
    edit_config(folder, "source_tokenizer", value="source.model")
    edit_config(folder, "source_tokenizer_sha256", value=file_sha256(folder / "source.model"))
    with pytest.raises(ModelFolderError, match="source_vocabulary expects the tokenizer's 27, found 25"):
        load(folder, device="cpu")
