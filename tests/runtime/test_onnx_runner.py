"""What the ONNX runner does where it cannot do what it is for, and how it chooses its numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import OptionError, Program
from longstride.nn import programs
from longstride.runtime.choosing import make_runner
from tests.models import random_source, tiny_model

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from longstride.runtime.onnx_builder import OnnxBuilder, quantize
from longstride.runtime.onnx_runner import OnnxRunner
from longstride.runtime.processor import Processor, this_processor


def test_a_program_without_a_drawing_runs_eagerly_and_says_so_once() -> None:
    told: list[str] = []
    runner = OnnxRunner("int8", 1, tell=told.append)
    program = Program("double", lambda x: 2 * x)
    assert runner.call(program, 4) == 8
    assert runner.call(program, 5) == 10
    assert len(told) == 1
    assert "'double' out eagerly in fp32: it has no graph" in told[0]


def test_a_graph_that_is_refused_runs_eagerly_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(1, torch.float32)
    source = random_source(2, 5)
    told: list[str] = []
    runner = OnnxRunner("fp32", 1, tell=told.append)
    monkeypatch.setattr(
        OnnxBuilder, "write", lambda self, state, new, start: self.node("NoSuchThing", state, new, start)
    )
    memory = runner.call(programs.encode_source(model), source.ids, source.lengths)
    arguments = (torch.tensor([[5, 6]] * 2), torch.tensor([0, 0]), model.new_cache(2, 20), memory)
    for _ in range(2):
        logits, _ = runner.call(programs.verify(model), *arguments)
    torch.testing.assert_close(logits, programs.verify(model).function(*arguments)[0])
    assert len(told) == 1
    assert "NoSuchThing" in told[0]


def test_without_the_packages_the_eager_runner_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "longstride.runtime.onnx_runner", raising=False)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    told: list[str] = []
    runner = make_runner("cpu", "int8", "onnx", tell=told.append)
    assert (runner.name, runner.precision) == ("eager", "fp32")
    assert "pip install 'longstride[onnx]'" in told[0]
    assert "onnxruntime" in told[0]


def test_misuse() -> None:
    with pytest.raises(OptionError, match="fp32 or int8 with the runtime onnx, found 'bf16'"):
        make_runner("auto", "bf16", "onnx")
    with pytest.raises(OptionError, match=r"threads expects a whole number from 1 to .*, found 0"):
        make_runner("cpu", "fp32", "onnx", threads=0)
    with pytest.raises(OptionError, match="int8 expects the runtime native or onnx"):
        make_runner("cpu", "int8", "eager")


def test_one_graph_serves_all_shapes_and_all_sessions() -> None:
    model = tiny_model(1, torch.float32)
    runner = OnnxRunner("fp32", 1)
    for rows in (1, 3):
        source = random_source(rows, 5)
        memory = runner.call(programs.encode_source(model), source.ids, source.lengths)
        for step in (2, 4):
            start = torch.zeros(rows, dtype=torch.int64)
            runner.call(
                programs.verify(model), source.ids[:, :1].expand(-1, step), start, model.new_cache(rows, 20), memory
            )
    assert len(runner.graphs) == 2


@pytest.mark.parametrize(
    ("machine", "words", "saturates", "said"),
    [
        ("aarch64", "Features : fp asimd asimddp i8mm", False, "i8mm"),
        ("aarch64", "Features : fp asimd", False, "no known features"),
        ("x86_64", "flags : sse avx2 avx512bw avx512_vnni", False, "VNNI"),
        ("x86_64", "flags : sse avx2", True, "7 bits"),
        ("x86_64", "", True, "7 bits"),
    ],
)
def test_what_the_processor_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, words: str, saturates: bool, said: str
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    (tmp_path / "cpuinfo").write_text(f"processor : 0\n{words}\n")
    processor = this_processor(tmp_path / "cpuinfo")
    assert processor.saturates == saturates
    assert said in processor.describe()


def test_a_runner_says_what_it_uses() -> None:
    runner = OnnxRunner("int8", 3, processor=Processor("aarch64", frozenset({"asimddp"})))
    assert "int8 on 3 threads of aarch64 with int8 dot products (asimddp)" in runner.describe()


@given(seed=st.integers(0, 999), levels=st.sampled_from([63, 127]))
def test_quantized_weights_are_within_half_a_step(seed: int, levels: int) -> None:
    weight = torch.randn(5, 9, generator=torch.Generator().manual_seed(seed))
    weight[2] = 0
    codes, scale = quantize(weight, levels)
    assert codes.abs().max() <= levels
    assert ((codes * scale[:, None] - weight).abs() <= scale[:, None] * 0.5001).all()
    assert (codes[2] == 0).all()
