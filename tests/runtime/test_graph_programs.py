"""Every drawn program against its eager twin: the same numbers, and the same left behind in the caches."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride.contract import Program
from longstride.nn import programs
from longstride.nn.cache import EncoderState
from longstride.runtime.eager import EagerRunner
from longstride.runtime.graph_runner import GraphRunner
from longstride.systems.blockwise.model import Heads, HeadsOptions
from longstride.systems.blockwise.programs import predict
from longstride.systems.blockwise.programs import verify as verify_by_head
from longstride.systems.draft_verify import programs as drafting
from tests.decoding.drafters import KINDS, tiny_drafter
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH, Graphs

SHAPES = st.fixed_dictionaries(
    {
        "norm": st.sampled_from(["post", "pre"]),
        "activation": st.sampled_from(["relu", "gelu", "silu"]),
        "positions": st.sampled_from(["sinusoidal", "learned"]),
        "tie": st.sampled_from(["all", "target", "none"]),
        "scale_embeddings": st.booleans(),
    }
)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def refuse(message: str) -> None:
    raise AssertionError(message)


def runner(graphs: Graphs, precision: str = "fp32") -> GraphRunner:
    return graphs(precision, 1, tell=refuse)  # type: ignore[arg-type]


def tensors(found: Any) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [found]
    if isinstance(found, EncoderState):
        return [found.keys, found.values, found.visible]
    return [tensor for part in found for tensor in tensors(part)]


def same(
    graphs: Graphs, program: Program, *arguments: Any, states: tuple[Tensor, ...] = (), read: Tensor | None = None
) -> Any:
    """Run a program both ways on the same state; the eager result. Of the states [layers, rows, heads, slots, head]
    others may look at the first `read` [rows] slots alone, or at all."""
    before = [state.clone() for state in states]
    expected = EagerRunner().call(program, *arguments)
    after = [state.clone() for state in states]
    for state, was in zip(states, before, strict=True):
        state.copy_(was)
    found = runner(graphs).call(program, *arguments)
    for mine, theirs in zip(tensors(found), tensors(expected), strict=True):
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine, theirs, **CLOSE)
    for state, wanted in zip(states, after, strict=True):
        for row in range(state.shape[1]):
            slots = slice(None if read is None else int(read[row]))
            torch.testing.assert_close(state[:, row, :, slots], wanted[:, row, :, slots], **CLOSE)
    return expected


@BOTH
@settings(max_examples=15)
@given(seed=st.integers(0, 999), rows=st.integers(1, 3), step=st.integers(1, 5), shape=SHAPES)
def test_the_transformers_steps(graphs: Graphs, seed: int, rows: int, step: int, shape: dict[str, Any]) -> None:
    model = tiny_model(seed, torch.float32, sharpness=1.0, **shape)
    source = random_source(rows, 7, seed=seed)
    memory = same(graphs, programs.encode_source(model), source.ids, source.lengths)
    cache = model.new_cache(rows, 40)
    generator = torch.Generator().manual_seed(seed)
    cache.keys.normal_(generator=generator)
    cache.values.normal_(generator=generator)
    ids = torch.randint(0, 11, (rows, step), generator=generator)
    start = torch.randint(0, 35, (rows,), generator=generator)
    same(graphs, programs.verify(model), ids, start, cache, memory, states=(cache.keys, cache.values))


@BOTH
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("beams", [1, 3])
def test_hypotheses_that_share_a_source(graphs: Graphs, step: int, beams: int) -> None:
    model = tiny_model(3, torch.float32, sharpness=1.0)
    source = random_source(2, 7, seed=3)
    memory = model.encode_source(source.ids, source.lengths)
    cache = model.new_cache(2 * beams, 20)
    ids = torch.randint(0, 11, (2 * beams, step), generator=torch.Generator().manual_seed(1))
    start = torch.arange(2 * beams)
    same(graphs, programs.extend(model), ids, start, cache, memory, 32, states=(cache.keys, cache.values))


@BOTH
def test_a_cache_that_is_no_block_of_memory_is_written_all_the_same(graphs: Graphs) -> None:
    model = tiny_model(4, torch.float32, sharpness=1.0)
    source = random_source(2, 5, seed=4)
    memory = model.encode_source(source.ids, source.lengths)
    cache = model.new_cache(4, 20)
    cache.keys, cache.values = cache.keys[:, ::2], cache.values[:, ::2]
    ids, start = torch.tensor([[5, 6], [7, 8]]), torch.tensor([0, 3])
    same(graphs, programs.verify(model), ids, start, cache, memory, states=(cache.keys, cache.values))


@BOTH
@pytest.mark.parametrize("link", [{}, {"link": 3, "vocabulary": 11}])
@pytest.mark.parametrize("first", ["identity", "learned"])
@pytest.mark.parametrize("k", [2, 4])
def test_heads(graphs: Graphs, first: str, k: int, link: dict[str, int]) -> None:
    model = tiny_model(5, torch.float32, sharpness=1.0)
    torch.manual_seed(5)
    heads = Heads(HeadsOptions(4, 16, feed_forward=8, first=first, **link)).eval()  # type: ignore[arg-type]
    for weight in heads.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    same(graphs, predict(model, heads, k), torch.randn(3, 16), torch.tensor([5, 0, 9]), torch.tensor([0, 1, 2, 4, 7]))
    source = random_source(2, 5, seed=4)
    memory = model.encode_source(source.ids, source.lengths)
    cache = model.new_cache(2, 20)
    ids, start = torch.tensor([[5, 6], [7, 8]]), torch.tensor([0, 3])
    same(graphs, verify_by_head(model, heads), ids, start, cache, memory, states=(cache.keys, cache.values))


@BOTH
@settings(max_examples=20)
@given(seed=st.integers(0, 999), rows=st.integers(1, 3), given_states=st.booleans(), kind=KINDS)
def test_a_drafters_steps(graphs: Graphs, seed: int, rows: int, given_states: bool, kind: dict[str, Any]) -> None:
    verifier = tiny_model(seed, torch.float32, encoder_layers=2)
    drafter = tiny_drafter(seed, torch.float32, **kind)
    source = random_source(rows, 7, seed=seed)
    columns, window, block = 24, 4, 3
    whole = drafter.options.encoder != "own" and drafter.options.shared_layers is None
    states = verifier.encode_source(source.ids, source.lengths).states if given_states and whole else None
    encode_source = drafting.encode_source(drafter, verifier, states is not None)
    memory, mask_slots = same(graphs, encode_source, source.ids, source.lengths, states, columns)
    cache = drafter.new_cache(rows, columns + drafter.options.block)
    generator = torch.Generator().manual_seed(seed)
    cache.keys.normal_(generator=generator)
    cache.values.normal_(generator=generator)
    tokens = torch.randint(5, 11, (rows, columns - 1), generator=generator)
    length = torch.randint(0, 18, (rows,), generator=generator)
    states_kept = (cache.keys, cache.values)
    same(
        graphs,
        drafting.draft(drafter),
        tokens,
        length,
        window,
        block,
        mask_slots,
        cache,
        memory,
        states=states_kept,
        read=length,
    )


@BOTH
def test_results_are_nobody_elses_memory(graphs: Graphs) -> None:
    """What one call gave stays what it was whatever is called after it."""
    model = tiny_model(6, torch.float32)
    onnx = runner(graphs)
    source = random_source(1, 5, seed=4)
    memory = onnx.call(programs.encode_source(model), source.ids, source.lengths)
    kept = dataclasses.replace(memory, keys=memory.keys.clone())
    onnx.call(programs.encode_source(model), source.ids.flip(1), source.lengths)
    assert torch.equal(memory.keys, kept.keys)
    cache = model.new_cache(1, 20)
    first, _ = onnx.call(programs.verify(model), torch.tensor([[5, 6]]), torch.tensor([0]), cache, memory)
    copy = first.clone()
    onnx.call(programs.verify(model), torch.tensor([[7, 8]]), torch.tensor([2]), cache, memory)
    assert torch.equal(first, copy)
