"""Kernels of our own in interleaved steps: on a CUDA device, or in Triton's interpreter where TRITON_INTERPRET is 1."""

from __future__ import annotations

import ast
from typing import Any

import pytest
import torch

from longstride.contract import Limits
from longstride.ops import BlockCausal, Causal
from longstride.ops.cuda.self_test import CASES, TOLERANCE, compare
from longstride.ops.kernels import TYPES
from longstride.systems.interleaved import beam_check, kernels, table
from longstride.systems.interleaved import model as interleaved_model
from longstride.systems.interleaved.decoder import Interleaved, InterleavedOptions
from longstride.systems.interleaved.kernel_check import ROWS, commits_differ, differing, inputs_differ
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.systems.interleaved.rows import Rows
from tests.decoding.interleaved import tiny_interleaved
from tests.models import random_source
from tests.nn import test_overlap as overlap
from tests.nn.running_kernels import KernelRunner, table_for, where
from tests.runtime.test_cuda_graph import taped

VARIANTS: list[dict[str, Any]] = [
    {"h": 2, "c": 1},
    {"h": 2, "c": 1, "start": "learned"},
    {"h": 1, "c": 3, "start": "zeros"},
    {"h": 2, "c": 1, "mask": "vanilla"},
    {"h": 2, "c": 1, "independent": True},
    {"h": 2, "c": 2, "link": 3},
    {"h": 4, "c": 1},
]
FILES = ("ops/cuda/block_attention.py", "systems/interleaved/step_kernels.py", "systems/interleaved/beam_kernels.py")
SHAPE: dict[str, Any] = {"width": 32, "heads": 2, "feed_forward": 32}


# --- by themselves ---------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("head", [16, 64])
@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")
def test_slots_of_a_step_see_each_other_and_all_before_them(head):
    device = where(loops=True)
    found = compare(CASES["step of a block"], table_for(device), device, torch.float32, head)
    assert found <= TOLERANCE[torch.float32]


@pytest.mark.gpu
@pytest.mark.parametrize("start", ["symbol", "zeros", "learned"])
@pytest.mark.parametrize(("h", "c"), [(1, 1), (2, 1), (2, 3), (6, 1)])
@pytest.mark.parametrize("seed", [0, 1])
def test_what_surrounds_the_layers_is_what_tensor_code_makes_of_it(start, h, c, seed):
    """Idle rows, ends in any slot, ends after ends."""
    options = InterleavingOptions(24, h, c, start=start)
    with torch.inference_mode():
        assert inputs_differ(options, where(), torch.float32, seed) == ""
        assert commits_differ(options, False, where(), seed) == ""
        assert commits_differ(options, True, where(), seed) == ""


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
def test_nothing_speaks_against_them_on_a_gpu(dtype):
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    device = torch.device("cuda", 0)
    assert kernels.why_not(device, dtype) == ""


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")
@pytest.mark.parametrize(("width", "step", "n_best"), [(1, 1, 1), (2, 6, 1), (4, 2, 1), (5, 2, 2), (8, 2, 3)])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_step_of_a_beam_is_what_tensor_code_makes_of_it(width, step, n_best, seed):
    """An idle sentence, ends in any slot, places that fill, limits within reach."""
    with torch.inference_mode():
        assert beam_check.differs(width, step, n_best, seed, where(loops=True), seed) == ""


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")
def test_the_check_before_use_finds_nothing():
    assert differing(where(), torch.float32) == ""
    assert beam_check.differing(where(loops=True)) == ""


def test_elsewhere_it_says_why_not():
    assert "expects a CUDA device" in kernels.why_not(torch.device("cpu"), torch.float16)
    assert not kernels.usable(taped()[0])


def kernels_of_ours() -> list[ast.FunctionDef]:
    every = [node for file in FILES for node in ast.parse((overlap.PACKAGE / file).read_text()).body]
    found = [node for node in every if isinstance(node, ast.FunctionDef)]
    return [node for node in found if "OVERLAP" in [argument.arg for argument in node.args.args]]


def test_all_of_them_can_overlap():
    assert [kernel.name for kernel in kernels_of_ours()] == ["_extend_whole", "_lay_out", "_commit", "_fold_words"]


@pytest.mark.parametrize("kernel", kernels_of_ours(), ids=lambda kernel: kernel.name)
def test_before_it_waits_a_kernel_reads_weights_alone(kernel):
    overlap.test_before_it_waits_a_kernel_reads_weights_alone(kernel)


# --- in a decoder ----------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize(("end", "dedup", "width"), [("any-direction", 0, 1), ("paper", 2, 1), ("any-direction", 0, 3)])
def test_decoding_with_them_is_decoding_without(variant, end, dedup, width, monkeypatch):
    """Step by step the same, in tables that are filled again; in fp32 by one machine's own products."""
    device = where(loops=True)
    limits = Limits(max_length=6, min_length=2 if dedup else 0)
    how: dict[str, Any] = {"width": width, "end": end, "dedup": dedup}

    def outputs(names: tuple[str, ...]) -> tuple[list[object], list[float]]:
        runner = KernelRunner(device, "fp32", names)
        model = runner.place(tiny_interleaved(5, variant, sharpness=1.5, **SHAPE).float())
        decoder = Interleaved(model.model, model.interleaving, runner, InterleavedOptions(**how))
        decoded = decoder.decode(random_source(3, 5, seed=2), limits, capacity=2, trace=True)
        return [decoded.tokens, decoded.traces], decoded.scores

    expected, scores = outputs(())
    monkeypatch.setattr(table, "usable", lambda runner: True)
    found, ours = outputs(("step", "mask"))
    assert found == expected
    assert ours == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize(
    ("variant", "rule"), [(VARIANTS[0], "together"), (VARIANTS[3], "causal"), (VARIANTS[4], "other")]
)
def test_steps_say_by_which_rule_they_see(variant, rule, monkeypatch):
    """By it a kernel is chosen."""
    model, seen = tiny_interleaved(1, variant), []
    layout = model.layout(16)
    assert layout.rule == rule
    monkeypatch.setattr(
        interleaved_model, "extend_all", lambda layers, x, cache, slots, bias, *_: seen.append(bias) or x
    )
    ids, start = torch.full((1, model.options.step), 5), torch.zeros(1, dtype=torch.int64)
    model.extend(ids, start, model.model.new_cache(1, 16), None, layout)
    assert type(seen[0]) is {"together": BlockCausal, "causal": Causal, "other": torch.Tensor}[rule]


# --- what the host sees ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [10, 3000])
def test_the_host_sees_rows_whether_few_or_many_words_travel(room):
    with torch.inference_mode():
        rows = Rows(ROWS, room, InterleavingOptions(8, 2, 1), torch.device("cpu"))
        assert rows.look().done == [True] * ROWS
        rows.open(torch.tensor([1, 3]))
        rows.words[3, :3] = torch.tensor([7, 8, 9])
        rows.length[3], rows.filled[3], rows.log_probability[3] = 3, 4, -1.5
        seen = rows.look()
        assert seen.done == [True, False, True, False, True]
        assert seen.of(3) == ([7, 8, 9], 4, -1.5)
