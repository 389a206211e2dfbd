"""The runner: what it says of itself, what it falls back to, and that it uses nothing that fails its self-test."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch

from longstride.contract import OptionError, Program
from longstride.nn import programs
from longstride.runtime.choosing import make_runner
from longstride.runtime.native import runner as native
from longstride.runtime.native import self_test
from longstride.runtime.native.graph import MachineError
from longstride.runtime.native.library import NoLibraryError
from longstride.runtime.native.runner import NativeRunner
from longstride.runtime.processor import Processor
from tests.models import random_source, tiny_model
from tests.runtime.native.harness import needs_library

pytestmark = needs_library()


def test_what_it_says() -> None:
    runner = NativeRunner("fp32", 3, processor=Processor("riscv64", frozenset()))
    assert runner.describe() == "native, fp32 on 3 threads of riscv64"
    assert make_runner("cpu", "fp32", "native", threads=2).name == "native"


def test_misuse() -> None:
    with pytest.raises(OptionError, match="fp32 or int8 with the runtime native, found 'bf16'"):
        make_runner("auto", "bf16", "native")
    with pytest.raises(OptionError, match=r"threads expects a whole number from 1 to .*, found 0"):
        make_runner("cpu", "fp32", "native", threads=0)


def test_without_a_library_others_take_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise NoLibraryError("The runtime native was not built.")

    monkeypatch.setattr(native, "library", refuse)
    told: list[str] = []
    monkeypatch.setitem(sys.modules, "longstride.runtime.onnx_runner", None)
    found = make_runner("cpu", "int8", "native", tell=told.append)
    assert (found.name, found.precision) == ("eager", "fp32")
    assert told == ["The runtime native was not built. The model runs eagerly in fp32."]
    monkeypatch.delitem(sys.modules, "longstride.runtime.onnx_runner")
    pytest.importorskip("onnxruntime")
    found = make_runner("cpu", "int8", "native", tell=told.append)
    assert (found.name, found.precision) == ("onnx", "int8")
    assert told[1].endswith("The model runs in int8 by the runtime onnx.")


def test_a_program_without_a_drawing_runs_eagerly_and_says_so_once() -> None:
    told: list[str] = []
    runner = NativeRunner("fp32", 1, tell=told.append)
    program = Program("twice", lambda x: 2 * x)
    for _ in range(2):
        assert runner.call(program, torch.tensor([1.0])).tolist() == [2.0]
    assert told == ["The runtime native carries the program 'twice' out eagerly in fp32: it has no graph."]


def test_what_fails_the_self_test_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(int8: bool) -> bool:
        raise MachineError("Linear, operator 1 of 2: no")

    for holds, said in ((lambda int8: False, "in fp32: it gives other numbers than it should"), (fail, "1 of 2: no")):
        self_test.self_test.cache_clear()
        monkeypatch.setattr(self_test, "_holds", holds)
        with pytest.raises(NoLibraryError, match=said):
            NativeRunner("fp32", 1)
    self_test.self_test.cache_clear()


def test_programs_of_one_model_share_its_weights() -> None:
    model = tiny_model(1, torch.float32)
    runner = NativeRunner("fp32", 1)
    source = random_source(2, 5)
    memory = runner.call(programs.encode_source(model), source.ids, source.lengths)
    ids, start = torch.tensor([[5, 6], [7, 8]]), torch.zeros(2, dtype=torch.int64)
    for program in (programs.verify(model), programs.extend(model)):
        runner.call(program, ids, start, model.new_cache(2, 16), memory)
    _, verify, extend = runner.graphs.values()
    of_verify, of_extend = (
        [node.weights for node in graph.plan.nodes if node.weights is not None]  # type: ignore[union-attr]
        for graph in (verify, extend)
    )
    assert all(one is other for one, other in zip(of_verify, of_extend, strict=True))


def test_a_few_tables_serve_all_lengths() -> None:
    runner = NativeRunner("fp32", threads=1)
    assert [runner.round_up(size, 16) for size in (1, 16, 17, 33)] == [16, 16, 32, 48]
    assert [runner.round_up(rows) for rows in (1, 3, 17)] == [1, 3, 17]


def test_graphs_run_on_while_the_process_ends() -> None:
    """Exit handlers run while threads are still at work, such as a server's that did not end in time."""
    code = """
        import atexit
        import torch
        from tests.runtime.native.small_graphs import graph_of, numbers, spec_of

        given, weight = {"x": numbers(4, 64)}, numbers(64, 64, seed=1)
        record = lambda builder, given: {"y": builder.linear(given["x"], weight)}
        spec = spec_of(record, given, {"y": numbers(4, 64)})
        graph = graph_of(spec)
        before = graph(spec.feeds(given))["y"]
        atexit._run_exitfuncs()
        assert torch.equal(graph(spec.feeds(given))["y"], before)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)
