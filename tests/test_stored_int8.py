"""Weights stored in int8: how far they may be from what they were, that nothing is lost twice, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save

from longstride import model_folder
from longstride.contract import ModelFolderError, WorkError
from longstride.model_folder import DecoderConfig, ModelFolder, Part
from longstride.nn.transformer import Transformer
from longstride.nn.weights import SCALE, quantized, read_weights
from longstride.runtime import choosing
from longstride.runtime.names import RUNTIMES
from longstride.translator import load
from tests.cli.conftest import Run, run
from tests.family import DECODERS, write_family
from tests.folders import LONGEST, replace_weights, words, write_folder
from tests.models import tiny_model, tiny_options

__all__ = ["run"]

LINES = ["a b c", "d d e f a", "b"]


def stored(path: Path, seed: int = 3) -> Path:
    model = tiny_model(seed, torch.float32, vocabulary=words().size, longest=LONGEST)
    decoders = {name: DecoderConfig({"model": "model"}) for name in ("greedy", "beam")}
    part = Part("transformer", model.options, model)
    model_folder.write(path, {"model": part}, decoders, "greedy", words(), dtype=torch.int8)
    return path


def floats(codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return codes.to(torch.float32) * scale[..., None]


def rows(seed: int, shape: tuple[int, ...], exponent: int) -> torch.Tensor:
    """Numbers of any size, some rows nothing but zeros."""
    made = torch.Generator().manual_seed(seed)
    numbers = torch.randn(shape, generator=made) * 10.0 ** torch.randint(-3, 3, shape[:-1], generator=made)[..., None]
    return numbers * 10.0**exponent * (torch.rand(shape[:-1], generator=made) > 0.1)[..., None]


any_rows = st.builds(
    rows,
    st.integers(0, 10**6),
    st.sampled_from([(1, 1), (3, 2), (7, 33), (2, 3, 5), (40, 16)]),
    st.integers(-40, 30),
)


@settings(max_examples=100)
@given(any_rows)
def test_a_weight_is_at_most_half_a_step_from_what_it_was(weight: torch.Tensor) -> None:
    found = quantized("w", weight)
    codes, scale = found["w"], found["w" + SCALE]
    assert (codes.dtype, scale.dtype, scale.shape) == (torch.int8, torch.float32, weight.shape[:-1])
    error = (floats(codes, scale).double() - weight.double()).abs()
    assert bool((error <= scale.double()[..., None] / 2 * (1 + 1e-6)).all())


@settings(max_examples=100)
@given(any_rows)
def test_what_was_read_is_written_again_as_it_was(weight: torch.Tensor) -> None:
    once = quantized("w", weight)
    again = quantized("w", floats(*once.values()))
    assert all(torch.equal(once[name], again[name]) for name in once)


def test_all_weights_come_back_and_take_a_quarter(tmp_path: Path) -> None:
    model = tiny_model(3, torch.float32, vocabulary=words().size, longest=LONGEST)
    folder = ModelFolder(stored(tmp_path / "model"))
    tensors = load_file(folder.path / "model.safetensors")
    read = folder.load("model", lambda: Transformer(model.options)).state_dict()
    for name, weight in model.state_dict().items():
        if weight.dim() > 1:
            step = tensors[name + SCALE][..., None]
            assert bool(((read[name] - weight).abs() <= step / 2 * (1 + 1e-6)).all())
        else:
            assert torch.equal(read[name], weight)
    assert folder.stored("model") == "int8"
    assert sum(tensor.nbytes for tensor in tensors.values()) < 0.5 * sum(w.nbytes for w in model.state_dict().values())


@pytest.mark.parametrize("runtime", ["eager", "native", "onnx"])
def test_every_runtime_decodes_what_eager_does_of_the_floats(tmp_path: Path, runtime: str) -> None:
    """A folder in int8 is the folder of the floats that its numbers stand for."""
    folder = ModelFolder(stored(tmp_path / "int8"))
    shape = tiny_options(vocabulary=words().size, longest=LONGEST)
    model = folder.load("model", lambda: Transformer(shape))
    decoders = {"greedy": DecoderConfig({"model": "model"})}
    part = Part("transformer", shape, model)
    model_folder.write(tmp_path / "fp32", {"model": part}, decoders, "greedy", words())
    if runtime == "onnx":
        pytest.importorskip("onnxruntime")
    expected = load(tmp_path / "fp32", runtime="eager", device="cpu").translate(LINES)
    found = load(tmp_path / "int8", runtime=runtime, device="cpu", precision="fp32").translate(LINES)
    assert [one.tokens for one in found] == [one.tokens for one in expected]


def test_auto_computes_in_int8_where_weights_are_stored_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "_integers", lambda: True)
    precisions = {runtime: choosing.fastest_precision("cpu", runtime, "int8") for runtime in RUNTIMES}
    assert precisions == {"eager": "fp32", "native": "int8", "onnx": "fp32", "cuda-graph": "fp32"}
    assert choosing.fastest_precision("cpu", "native", "fp16") == "fp32"
    monkeypatch.setattr(choosing, "_integers", lambda: False)
    assert choosing.fastest_precision("cpu", "native", "int8") == "fp32", "where the processor has no such products"
    folder = ModelFolder(stored(tmp_path / "int8"))
    assert (folder.precision, ModelFolder(write_folder(tmp_path / "fp32")).precision) == ("int8", "fp32")
    (folder.path / "model.safetensors").write_bytes(b"none")
    assert folder.precision == "fp32"
    with pytest.raises(ModelFolderError, match="corrupt or was replaced"):
        load(folder.path, device="cpu").translate("a")


def test_a_family_shares_its_encoder_in_int8_too(run: Run, tmp_path: Path) -> None:
    family, small = write_family(tmp_path / "family"), tmp_path / "small"
    ran = run("export", "--to", "longstride", "--precision", "int8", "-m", family, "-o", small)
    assert ran.code == 0, ran.err
    assert "A model folder with its weights in int8" in ran.err
    kept = {name: set(load_file(small / f"{name}.safetensors")) for name in ("model", "drafter", "scorer")}
    assert "encoder.layers.0.attention.qkv.weight" + SCALE in kept["model"]
    assert not [key for name in ("drafter", "scorer") for key in kept[name] if key.startswith("encoder.")]
    translator = load(small, device="cpu")
    assert all(len(translator.translate(LINES, decoder)) == len(LINES) for decoder in DECODERS)
    assert ModelFolder(small).stored("tables") == "integers"
    assert "stored in int8 and integers" in run("decoders", "-m", small).out
    # once more, into the other precision and back: nothing is lost by it
    wide, again = tmp_path / "wide", tmp_path / "again"
    assert run("export", "--to", "longstride", "--precision", "fp32", "-m", small, "-o", wide).code == 0
    assert run("export", "--to", "longstride", "--precision", "int8", "-m", wide, "-o", again).code == 0
    assert ModelFolder(again).sha256 == ModelFolder(small).sha256


def test_misuse_of_the_command(run: Run, tmp_path: Path) -> None:
    model = write_folder(tmp_path / "model")
    export = ["export", "--to", "longstride", "-m", model, "-o", tmp_path / "out"]
    assert "--precision expects fp32, fp16, bf16, int8 for a model folder" in run(*export, "--precision", "int4").error
    assert "expected no --drafter" in run(*export, "--drafter", model).error
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda scale: {}, "is stored in int8, and its 'target_embedding.weight.scale' is missing"),
        (lambda scale: {"target_embedding.weight.scale": scale[:-1]}, "is not that of its matrix: expected"),
        (lambda scale: {"target_embedding.weight.scale": scale.half()}, "of F32, found"),
        (lambda scale: {"target_embedding.weight.scale": scale / 0}, "expected finite numbers, found others"),
    ],
)
def test_a_scale_that_is_not_right_is_refused(tmp_path: Path, spoil: object, told: str) -> None:
    path = stored(tmp_path / "model")
    tensors = load_file(path / "model.safetensors")
    scale = tensors.pop("target_embedding.weight" + SCALE)
    replace_weights(path, save({**tensors, **spoil(scale)}))  # type: ignore[operator]
    with pytest.raises(ModelFolderError, match="model.safetensors: .*" + told):
        load(path, device="cpu").translate("a b c")


def test_a_scale_of_nothing_is_refused(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "model")
    weights = read_weights(path / "model.safetensors")
    replace_weights(path, save({**weights, "target_embedding.weight" + SCALE: torch.ones(3)}))
    with pytest.raises(ModelFolderError, match=r"found a weight 'target_embedding.weight.scale' that the part's"):
        load(path, device="cpu").translate("a b c")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(tmp_path: Path, number: float) -> None:
    model = tiny_model(3, torch.float32, vocabulary=words().size)
    with torch.no_grad():
        model.target_embedding.weight[1, 2] = number
    part = Part("transformer", model.options, model)
    with pytest.raises(WorkError, match=r"found others in 'target_embedding.weight'; nothing was written"):
        model_folder.write(tmp_path / "m", {"model": part}, {}, "greedy", words(), dtype=torch.int8)
    assert not list(tmp_path.iterdir())
