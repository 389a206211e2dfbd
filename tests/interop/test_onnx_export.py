"""longstride export --to onnx: graphs that ONNX Runtime alone decodes with, to the same ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from longstride import load, model_folder
from longstride.contract import Source
from longstride.interop.onnx_folder import MANIFEST, OnnxFolder, export_onnx
from longstride.model_folder import DecoderConfig, Part
from longstride.runtime import graph_runner
from longstride.runtime.processor import Processor
from longstride.systems.blockwise.model import Heads, HeadsOptions
from longstride.text.files import file_sha256
from tests.cli.conftest import Run, model, run
from tests.decoding.drafters import tiny_drafter
from tests.folders import LONGEST, words, write_folder
from tests.models import random_source, tiny_model

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


__all__ = ["model", "run"]


def whole_folder(path: Path) -> Path:
    """A model with heads and a drafter."""
    tokenizer = words()
    size = {"vocabulary": tokenizer.size, "longest": LONGEST}
    model = tiny_model(0, torch.float32, encoder_layers=2, **size)
    torch.manual_seed(1)
    heads = Heads(HeadsOptions(4, 16, feed_forward=8))
    drafter = tiny_drafter(1, torch.float32, **{**size, "encoder": {"encoder": "shared", "verifier_width": 16}})
    parts = {
        "model": Part("transformer", model.options, model),
        "heads": Part("heads", heads.options, heads),
        "drafter": Part("drafter", drafter.options, drafter),
    }
    roles = {"greedy": ["model"], "blockwise": ["model", "heads"], "draft-verify": ["model", "drafter"]}
    decoders = {name: DecoderConfig({role: role for role in needed}) for name, needed in roles.items()}
    model_folder.write(path, parts, decoders, "greedy", tokenizer, provenance={"recipe": {"name": "whole"}})
    return path


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_onnxruntime_alone_gives_the_same_ids(tmp_path: Path, precision: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # In 7 bits, as graphs are that somebody may run on a processor whose sums overflow (with 8 this failed on one).
    monkeypatch.setattr(graph_runner, "this_processor", lambda: Processor("x86_64", frozenset({"avx2"})))
    folder = write_folder(tmp_path / "model", encoder_layers=2)
    (tmp_path / "out").mkdir()
    export_onnx(load(folder, device="cpu"), tmp_path / "out", precision)
    translator = load(folder, runtime="onnx", precision=precision, threads=1)
    decoder, limits = translator.decoder("greedy")
    source = random_source(6, 12, translator.source_tokenizer.size, seed=5)
    expected = decoder.decode(source, limits, capacity=1)
    assert OnnxFolder(tmp_path / "out").decode(source, limits).tokens == expected.tokens
    if precision == "fp32":
        eager, _ = load(folder, device="cpu").decoder("greedy")
        assert eager.decode(source, limits, capacity=1).tokens == expected.tokens


def test_every_part_has_its_graphs(tmp_path: Path) -> None:
    folder = whole_folder(tmp_path / "model")
    (tmp_path / "out").mkdir()
    said = export_onnx(load(folder, device="cpu"), tmp_path / "out", "fp32")
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert list(manifest["graphs"]) == ["remember", "verify", "heads", "remember-draft", "draft"]
    assert said == "5 ONNX graphs in fp32 (remember, verify, heads, remember-draft, draft), and manifest.json."
    for graph in manifest["graphs"].values():
        file = tmp_path / "out" / graph["file"]
        assert file_sha256(file) == graph["sha256"]
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        assert {one.name for one in session.get_inputs()} == set(_names({**graph["inputs"], **graph["state"]}))
        made = {*_names(graph["outputs"]), *(f"new_{name}" for name in _names(graph["state"]))}
        assert {one.name for one in session.get_outputs()} == made
    assert (tmp_path / "out" / manifest["tokenizer"]).exists()


def _names(values: dict[str, Any]) -> list[str]:
    found = []
    for name, value in values.items():
        found += [f"{name}.{layer}" for layer in range(value["layers"])] if "layers" in value else [name]
    return found


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_the_command_writes_checks_and_refuses(run: Run, model: Path, tmp_path: Path, precision: str) -> None:
    (tmp_path / "lines").write_text("a b c\n\nd e\nf\n")
    asked = ["export", "-m", model, "--to", "onnx", "--precision", precision, "--check-with", tmp_path / "lines"]
    ran = run(*asked, "-o", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"Greedy search by onnx {onnxruntime.__version__}, {precision}: ")
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"manifest.json", "remember.onnx", "verify.onnx"} < files
    assert "found something in it" in run(*asked, "-o", tmp_path / "out").error


def test_other_precisions_are_refused(run: Run, model: Path, tmp_path: Path) -> None:
    ran = run("export", "-m", model, "--to", "onnx", "--precision", "bf16", "-o", tmp_path / "out")
    assert "--precision expects fp32 or int8 for ONNX, found 'bf16'" in ran.error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "asked",
    [
        {"min_length": 3, "max_length": 6, "banned": (7, 8)},
        {"forced_first": 9, "max_length": 6},
        {"no_repeat_ngram": 1, "max_length": 6},
        {"no_repeat_ngram": 2, "forced_first": 9, "min_length": 9, "max_length": 12},
    ],
)
def test_limits_hold_in_the_loop_outside(tmp_path: Path, asked: dict[str, Any]) -> None:
    folder = write_folder(tmp_path / "model")
    (tmp_path / "out").mkdir()
    translator = load(folder, device="cpu")
    export_onnx(translator, tmp_path / "out")
    decoder, limits = translator.decoder("greedy", **asked)
    source = Source.of([[5, 6, 9, 3], [11, 3]])
    assert OnnxFolder(tmp_path / "out").decode(source, limits).tokens == decoder.decode(source, limits).tokens
