"""Kernels that start while the one before them ends: who decides it, the rule that makes it safe, and equal bits.

The rule is read from the kernels' own source: an interpreter has no two kernels at a time. On a GPU races show rarely,
hence the many turns.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

import longstride
from longstride import ops
from longstride.contract import Limits
from longstride.ops.kernels import FIRST, WAITED, kernels_of
from longstride.runtime.cuda_graph import CudaGraphRunner
from tests.models import random_source, tiny_model
from tests.nn.running_kernels import table_for
from tests.runtime.test_cuda_graph_kernels import decoders_of

NAMES = ("norm", "step", "source", "product", "embed")
CUDA = torch.device("cuda", 0)
PACKAGE = Path(longstride.__file__).parent
FILES = (
    "ops/cuda/decode_attention.py",
    "ops/cuda/step_linear.py",
    "ops/cuda/wide_linear.py",
    "ops/cuda/embed.py",
    "ops/cuda/add_norm.py",
    "ops/cuda/link_candidates.py",
    "ops/cuda/link_chain.py",
    "ops/cuda/row_product.py",
    "ops/cuda/source_attention.py",
    "ops/cuda/beam.py",
    "ops/cuda/beam_bundles.py",
    "ops/cuda/canvas.py",
    "ops/cuda/lattice_candidates.py",
    "ops/cuda/lattice_edges.py",
    "ops/cuda/lattice_paths.py",
    "ops/cuda/acceptance.py",
    "ops/cuda/draft_tree.py",
    "ops/cuda/tree_candidates.py",
    "ops/cuda/tree_slots.py",
)
WEIGHTS = {"weight", "bias", "weight_from"}
"""Names of what a kernel may read before it waits: no kernel writes it."""


# --- who decides it --------------------------------------------------------------------------------------------------


def test_nobody_overlaps_off_a_cuda_device_or_without_a_table():
    pytest.importorskip("triton")
    from longstride.ops.cuda.overlap import launching

    assert launching(torch.zeros(1)) == {"OVERLAP": 0}
    with kernels_of(table_for(torch.device("cpu"), overlap=WAITED)):
        assert launching(torch.zeros(1)) == {"OVERLAP": 0}


def test_older_devices_are_told_what_is_expected(monkeypatch):
    pytest.importorskip("triton")
    from longstride.ops.cuda.overlap import unsupported_reason

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 6))
    assert unsupported_reason(CUDA) == "it expects a device of capability 9.0 or later, found 8.6"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (10, 0))
    assert "capability" not in unsupported_reason(CUDA)


# --- the rule --------------------------------------------------------------------------------------------------------


def kernels() -> list[ast.FunctionDef]:
    """All that can be launched so."""
    found = []
    for file in FILES:
        for node in ast.parse((PACKAGE / file).read_text()).body:
            if isinstance(node, ast.FunctionDef) and "OVERLAP" in [argument.arg for argument in node.args.args]:
                found.append(node)
    return found


def calls(node: ast.AST, name: str) -> list[ast.Call]:
    every = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
    return [call for call in every if ast.unparse(call.func) == name]


def pointer(place: ast.expr) -> str:
    """The name that stands first in a sum."""
    return pointer(place.left) if isinstance(place, ast.BinOp) else ast.unparse(place)


def test_all_kernels_of_a_step_can_be_launched_so():
    names = [kernel.name for kernel in kernels()]
    assert set(names) == {
        *("_candidates", "_advance", "_fold_words"),
        *("_add_norm", "_best", "_canvas", "_embed", "_extend"),
        *(
            "_best_products",
            "_follow",
            "_pairs",
            "_product",
            "_read",
            "_row_product",
            "_settle",
            "_source",
            "_walk",
            "_wide_product",
        ),
        *("_look_up", "_add_up", "_choose"),
        *("_begin", "_two", "_shares", "_forward", "_backward"),
        *("_best_two", "_grow", "_shape", "_compact"),
    }


@pytest.mark.parametrize("kernel", kernels(), ids=lambda kernel: kernel.name)
def test_before_it_waits_a_kernel_reads_weights_alone(kernel):
    body = [one for one in kernel.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    assert ast.unparse(body[0]) == "begin(OVERLAP)"
    waits = [place for place, one in enumerate(body) if ast.unparse(one) == "wait(OVERLAP)"]
    assert len(waits) == 1  # and it is a statement of its own, which no program goes round
    for one in body[: waits[0]]:
        assert not calls(one, "tl.store")
        assert not [call for call in ast.walk(one) if isinstance(call, ast.Return)]
        for load in calls(one, "tl.load"):
            assert pointer(load.args[0]) in WEIGHTS


# --- bits ------------------------------------------------------------------------------------------------------------


def skip_where_they_cannot() -> None:
    from longstride.ops.cuda.overlap import unsupported_reason

    if against := unsupported_reason(CUDA):
        pytest.skip(against)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("manner", [FIRST, WAITED])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@torch.inference_mode()
def test_captured_steps_have_the_same_bits_with_and_without(manner, rows, dtype):
    """Steps of one slot and of several, one after another in a graph, fifty times over with other tokens."""
    skip_where_they_cannot()
    model = tiny_model(3, sharpness=0.3, width=128, heads=2, feed_forward=256).to(CUDA, dtype)
    generator = torch.Generator().manual_seed(rows)
    every = torch.randint(5, 11, (50, rows, 14), generator=generator).to(CUDA)
    ids, start = every[0].clone(), torch.arange(rows, device=CUDA)
    source = torch.randint(5, 11, (rows, 9), generator=generator).to(CUDA)
    memory = model.new_memory(rows, 9)
    memory.put(torch.arange(rows, device=CUDA), model.encode_source(source, torch.full((rows,), 9, device=CUDA)))
    cache = model.new_cache(rows, 40)

    def steps() -> torch.Tensor:
        parts = [model.extend(ids[:, a:b], start + a, cache, memory) for a, b in ((0, 1), (1, 9), (9, 10), (10, 14))]
        return torch.cat(parts, dim=1)

    def captured(on: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
        with kernels_of(table_for(CUDA, NAMES, overlap=manner if on else 0)):
            steps()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                hidden = steps()
        found = []
        for tokens in every:
            ids.copy_(tokens)
            graph.replay()
            found.append((hidden.clone(), cache.keys.clone()))
        return found

    for (ours, our_keys), (theirs, their_keys) in zip(captured(True), captured(False), strict=True):
        assert torch.equal(ours, theirs)
        assert torch.equal(our_keys, their_keys)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("manner", [FIRST, WAITED])
@torch.inference_mode()
def test_what_is_not_ours_may_lie_in_between(manner):
    """Ours first and last in a graph, after themselves, a copy, a memset and a library's product; each graph reads what
    the one before it wrote, and nobody waits for it."""
    skip_where_they_cannot()
    generator = torch.Generator().manual_seed(0)
    begin = torch.randn(3, 512, generator=generator).to(CUDA, torch.float16)
    linears = [torch.nn.Linear(512, 512).to(CUDA, torch.float16) for _ in range(4)]
    norm, state = torch.nn.LayerNorm(512).to(CUDA, torch.float16), begin.clone()

    def product(x: torch.Tensor, linear: torch.nn.Linear) -> torch.Tensor:
        return ops.linear(x, linear.weight, linear.bias)

    def add_norm(x: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        return ops.add_norm(x, added, norm.weight, norm.bias, norm.eps)

    def turn() -> None:
        x = product(product(state, linears[0]), linears[1])
        x = product(x.clone(), linears[2])
        x = add_norm(x, torch.zeros_like(x))
        x = product(linears[3](x), linears[0])
        state.copy_(add_norm(x, x))

    def captured(on: bool) -> list[torch.Tensor]:
        with kernels_of(table_for(CUDA, NAMES, overlap=manner if on else 0)):
            turn()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                turn()
        state.copy_(begin)
        found = []
        for _ in range(50):
            graph.replay()
            graph.replay()
            found.append(state.clone())
        return found

    for ours, theirs in zip(captured(True), captured(False), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("kind", ["greedy", "blockwise", "draft-verify"])
def test_whole_decodings_are_the_same_with_and_without(kind):
    """What lies between model calls included: fifty small tables of three rows."""
    skip_where_they_cannot()
    sources = [random_source(3, 14, seed=seed) for seed in range(50)]
    found = []
    for without in ((), ("overlap",)):
        runner = CudaGraphRunner("cuda:0", "fp16", without=without)
        decoder = decoders_of(kind, runner, [runner])[0]
        assert runner.kernels is not None
        assert bool(runner.kernels.overlap) == (not without)
        decoded = [decoder.decode(source, Limits(max_length=20)) for source in sources]
        found.append([one.hypotheses for one in decoded])  # ids and scores
    assert found[0] == found[1]
