"""Local attention and positions of pictures: the definition slot by slot, steps that equal the whole, every backend."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from longstride import ops
from longstride.contract import Limits, OptionError
from longstride.nn import programs
from longstride.nn.positions import picture_signal
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Beam, BeamOptions, Greedy, GreedyOptions
from longstride.systems.blockwise.decoder import Blockwise, BlockwiseOptions
from longstride.systems.blockwise.model import Heads, HeadsOptions
from tests.models import random_source, tiny_model, tiny_options
from tests.runtime.graphs import BOTH, Graphs
from tests.runtime.test_graph_programs import runner, same


def defined(packed: Tensor, heads: int, block: int) -> Tensor:
    """Slot by slot, over a list of what each sees."""
    queries, keys, values = (part.unflatten(-1, (heads, -1)) for part in packed.chunk(3, dim=-1))
    out = torch.zeros_like(queries)
    for row in range(packed.shape[0]):
        for slot in range(packed.shape[1]):
            own = slot // block
            seen = [key for key in range(slot + 1) if key // block in (own - 1, own)]
            for head in range(heads):
                scores = keys[row, seen, head] @ queries[row, slot, head] / math.sqrt(queries.shape[-1])
                out[row, slot, head] = scores.softmax(0) @ values[row, seen, head]
    return out.flatten(2)


@settings(max_examples=25)
@given(st.integers(1, 3), st.integers(1, 17), st.integers(1, 6))
def test_local_attention_is_its_definition(rows: int, length: int, block: int) -> None:
    packed = torch.randn(rows, length, 3 * 8, dtype=torch.float64, generator=torch.Generator().manual_seed(length))
    torch.testing.assert_close(ops.local_self_attention(packed, 2, block), defined(packed, 2, block))


def test_blocks_as_long_as_the_sequence_are_causal_attention() -> None:
    packed = torch.randn(2, 9, 3 * 8, dtype=torch.float64)
    torch.testing.assert_close(ops.local_self_attention(packed, 2, 9), ops.self_attention(packed, 2, None, causal=True))


@pytest.mark.parametrize("positions", ["picture", "relative"])
@settings(max_examples=12)
@given(st.integers(1, 7), st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_steps_over_a_cache_are_the_whole(positions: str, block: int, steps: list[int]) -> None:
    model = tiny_model(local_attention=block, positions=positions)
    source = random_source(2, 9, seed=1)
    visible = torch.arange(source.ids.shape[1]) < source.lengths[:, None]
    target = torch.randint(5, 11, (2, sum(steps)), generator=torch.Generator().manual_seed(2))
    whole = model.decode(target, model.encode(source.ids, visible), visible)
    cache, memory = model.new_cache(2, 30), model.encode_source(source.ids, source.lengths)
    found, start = [], 0
    for step in steps:
        found.append(model.extend(target[:, start : start + step], torch.full((2,), start), cache, memory))
        start += step
    torch.testing.assert_close(torch.cat(found, dim=1), whole)


def test_a_slot_does_not_see_beyond_the_block_before() -> None:
    """With one layer: what is further away changes nothing."""
    model = tiny_model(local_attention=4, decoder_layers=1)
    source = random_source(1, 9, seed=1)
    memory = model.encode(source.ids, None)
    target = torch.randint(5, 11, (1, 12), generator=torch.Generator().manual_seed(2))
    changed = target.clone()
    changed[0, 3] = 5 if target[0, 3] != 5 else 6
    before, after = (model.decode(ids, memory, None)[0] for ids in (target, changed))
    unchanged = {slot for slot in range(12) if torch.equal(before[slot], after[slot])}
    assert {0, 1, 2, 8, 9, 10, 11} <= unchanged
    assert not {3, 4} & unchanged


def _heads(width: int, dtype: torch.dtype) -> Heads:
    torch.manual_seed(0)
    heads = Heads(HeadsOptions(4, width, feed_forward=8)).to(dtype).eval().requires_grad_(False)
    for weight in heads.parameters():
        nn.init.normal_(weight, std=0.5)
    return heads


@BOTH
def test_graphs_give_the_eager_numbers(graphs: Graphs) -> None:
    model = tiny_model(dtype=torch.float32, local_attention=6, positions="picture")
    source = random_source(3, 7, seed=4)
    memory = same(graphs, programs.encode_source(model), source.ids, source.lengths)
    cache = model.new_cache(3, 40)
    ids = torch.randint(0, 11, (3, 4), generator=torch.Generator().manual_seed(1))
    start = torch.tensor([0, 5, 20])
    same(graphs, programs.verify(model), ids, start, cache, memory, states=(cache.keys, cache.values))
    same(graphs, programs.extend(model), ids, start, cache, memory, 48, states=(cache.keys, cache.values))


@BOTH
def test_every_decoder_runs_on_local_attention(graphs: Graphs) -> None:
    """Heads in chains and in trees give greedy's output, in every backend; so does a beam of one."""
    for backend, dtype in ((EagerRunner(), torch.float64), (runner(graphs), torch.float32)):
        model, heads = tiny_model(dtype=dtype, local_attention=5, positions="picture"), _heads(16, dtype)
        source, limits = random_source(4, 8, seed=5), Limits(max_length=24, min_length=24)
        expected = Greedy(model, backend, GreedyOptions()).decode(source, limits).tokens
        assert {len(tokens) for tokens in expected} == {24}
        for tree in (0, 6):
            decoder = Blockwise(model, heads, backend, BlockwiseOptions(tree=tree))
            assert decoder.decode(source, limits, capacity=2).tokens == expected
        assert Beam([model], backend, BeamOptions(width=1)).decode(source, limits).tokens == expected


def test_positions_tell_row_column_and_channel() -> None:
    """A picture of 4 x 4 from one of 2 x 2: parts of the signal that say one coordinate are equal where that is."""
    target, source = picture_signal(torch.arange(48), 32, 4), picture_signal(torch.arange(12), 32, 2, 2)
    rows, columns, channels = (target[:, part] for part in (slice(0, 12), slice(12, 24), slice(24, 32)))
    place = torch.arange(48)
    for part, coordinate in ((rows, place // 12), (columns, place // 3 % 4), (channels, place % 3)):
        apart = torch.cdist(part, part) > 0.1
        assert torch.equal(apart, coordinate != coordinate[:, None])
    # Each value of the source is nearest to those that it covers: the middle of them, in the output's coordinates.
    near = torch.cdist(source, target)
    for value in range(12):
        row, column, channel = value // 6, value // 3 % 2, value % 3
        covered = {((2 * row + y) * 4 + 2 * column + x) * 3 + channel for y in range(2) for x in range(2)}
        assert set(near[value].topk(4, largest=False).indices.tolist()) == covered


def test_options_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(OptionError, match="multiple of 16, found 24"):
        tiny_options(positions="picture", width=24)
    with pytest.raises(OptionError, match="picture_scale expects a divisor of picture 32, found 5"):
        tiny_options(positions="picture", picture_scale=5)
    with pytest.raises(OptionError, match="found local_attention=4"):
        tiny_options(local_attention=4).refuse_beyond_marian("It")
