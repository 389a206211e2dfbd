"""What a machine is said to be able to do is what it was seen to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from longstride.cli import doctor
from longstride.cli.doctor import ABSENT, BROKEN, OK
from longstride.runtime import choosing
from longstride.runtime.eager import EagerRunner
from longstride.translator import Translator, load
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def _few_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LINES", ("a b c", "b a"))


def states(text: str) -> dict[tuple[str, str], str]:
    found = re.findall(rf"^(\S+) +(fp32|int8|fp16) +({OK}|{ABSENT}|{BROKEN})", text, re.MULTILINE)
    return {(runtime, precision): state for runtime, precision, state in found}


def test_every_way_is_tried_and_none_is_broken(run: Run, model: Path) -> None:
    ran = run("doctor", "-m", model, "--threads", 1)
    found = states(ran.out)
    assert list(found) == list(doctor.WAYS)
    assert found["eager", "fp32"] == OK
    assert BROKEN not in found.values(), ran.out
    assert ran.code == 0
    assert "Fastest here: --runtime" in ran.out
    assert "Processor: " in ran.out
    assert "trying runtimes" not in ran.err, "where nobody looks on"


def test_other_output_than_pytorchs_is_broken(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Translator.translate

    def translate(self: Translator, *arguments: Any, **options: Any) -> Any:
        found = plain(self, *arguments, **options)
        return "other" if self.runner.name == "native" else found

    monkeypatch.setattr(Translator, "translate", translate)
    monkeypatch.setattr(doctor, "WAYS", doctor.WAYS[:2])
    ran = run("doctor", "-m", model, "--threads", 1)
    if states(ran.out)["native", "fp32"] == ABSENT:
        pytest.skip("the runtime native cannot be had here")
    assert states(ran.out)["native", "fp32"] == BROKEN
    assert "its greedy output is not PyTorch's." in ran.out
    assert ran.code == 1


def test_what_throws_is_broken(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no such symbol")

    monkeypatch.setattr(choosing, "_onnx_runner", fail)
    monkeypatch.setattr(doctor, "WAYS", (*doctor.WAYS[:1], ("onnx", "fp32"), ("native", "int8")))
    ran = run("doctor", "-m", model, "--threads", 1)
    assert states(ran.out)["onnx", "fp32"] == BROKEN
    assert "RuntimeError: no such symbol" in ran.out
    assert ran.code == 1


def test_what_is_not_installed_is_not_here_and_said(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(precision: str, threads: int | None, tell: Any) -> EagerRunner:
        tell("The runtime onnx expects the packages onnxruntime and onnx, found none: the model runs eagerly in fp32.")
        return EagerRunner()

    monkeypatch.setattr(choosing, "_onnx_runner", absent)
    monkeypatch.setattr(doctor, "WAYS", (*doctor.WAYS[:1], ("onnx", "fp32"), ("native", "int8")))
    ran = run("doctor", "-m", model, "--threads", 1)
    assert states(ran.out)["onnx", "fp32"] == ABSENT
    assert "found none." in ran.out
    assert "pip install" in ran.out
    assert ran.code == 0


def test_a_model_that_is_none_is_said_as_ever(run: Run, tmp_path: Path) -> None:
    assert "expected a model folder" in run("doctor", "-m", tmp_path / "no").error
    told = run("doctor", "-m", tmp_path / ("n" * 300))
    assert "File name too long" in told.err
    assert not states(told.out), "which is no runtime's fault"


def test_one_runtime_alone(run: Run, model: Path) -> None:
    assert list(states(run("doctor", "-m", model, "--runtime", "eager").out)) == [("eager", "fp32")]
    assert "--runtime expects eager, native, onnx, cuda-graph, found 'cuda'" in run("doctor", "--runtime", "cuda").error


def test_prepare_decodes_with_every_decoder_at_every_batch_size(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[tuple[str, int]] = []
    plain = Translator.translate

    def translate(self: Translator, lines: list[str], decoder: str, batch: int) -> Any:
        decoded.append((decoder, len(lines)))
        return plain(self, lines, decoder, batch=batch)

    monkeypatch.setattr(Translator, "translate", translate)
    monkeypatch.setattr(doctor, "SIDE_BY_SIDE", (1, 3))
    ran = run("doctor", "--prepare", "--runtime", "eager", "-m", model)
    names = list(load(model, runtime="eager").decoders)
    assert ran.code == 0
    assert decoded == [(name, size) for name in names for size in (1, 3)]
    assert ran.out.startswith("Prepared on eager")
    assert ran.out.rstrip().endswith(f"s: {', '.join(names)}.")


def test_prepare_takes_one_runtime(run: Run, model: Path) -> None:
    ran = run("doctor", "--prepare", "--runtime", "eager", "--runtime", "native", "-m", model)
    assert ran.code == 2
    assert "--prepare expects one --runtime at most, found 2." in ran.err
