"""Attention of a decoder step by kernels of our own, against plain arithmetic; bits that must not depend on shapes.

On a CUDA device in fp16, or in Triton's interpreter (TRITON_INTERPRET=1) in fp32: it is exact, and half precision is
slow on a CPU. The interpreter runs programs one after another, so that no test here could see a race; none is possible,
since no program reads what another, or it itself, writes.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from longstride import ops
from longstride.contract import START
from longstride.nn.cache import EncoderState
from longstride.nn.transformer import Transformer
from longstride.ops.cuda.self_test import TOLERANCE, compare
from longstride.ops.cuda.table import HEADS, NAMES
from longstride.ops.kernels import KernelTable, kernels_of
from tests.models import tiny_model
from tests.nn.running_kernels import QUICK, attended, case_of, few, table_for, where

pytestmark = pytest.mark.gpu
NAN = float("nan")


@pytest.fixture
def device() -> torch.device:
    return where()


@pytest.fixture
def dtype(device: torch.device) -> torch.dtype:
    return torch.float16 if device.type == "cuda" else torch.float32


def close(found: Tensor, expected: Tensor) -> None:
    bound = TOLERANCE[found.dtype]
    torch.testing.assert_close(found.double(), expected.double(), atol=bound, rtol=bound)


class Case:
    """Rows that begin at their own slots of a cache, in which what is not written yet is not a number."""

    def __init__(self, device: torch.device, dtype: torch.dtype, start: list[int], step: int, longest: int) -> None:
        generator = torch.Generator().manual_seed(step)
        heads, head = 2, 16
        self.packed = torch.randn(len(start), step, 3 * heads * head, generator=generator).to(device, dtype)
        self.start = torch.tensor(start, device=device)
        self.slots = self.start[:, None] + torch.arange(step, device=device)
        both = torch.randn(2, len(start), heads, 256, head, generator=generator).to(device, dtype)[:, :, :, :longest]
        past = torch.arange(longest, device=device) < self.start[:, None]
        self.keys, self.values = both.masked_fill(~past[:, None, :, None], NAN)

    def run(self, first: int = 0, last: int | None = None, rows: slice = slice(None)) -> Tensor:
        """Some slots of some rows, as one step."""
        part = slice(first, last)
        return extend(self.packed[rows, part], self.slots[rows, part], self.keys[rows], self.values[rows])

    def expected(self) -> Tensor:
        """By plain arithmetic, from the caches as they are after the step."""
        rows, step, width = self.packed.shape
        queries = self.packed.view(rows, step, 3, 2, width // 6)[:, :, 0].transpose(1, 2)
        visible = torch.arange(self.keys.shape[2], device=self.keys.device) <= self.slots[:, None, :, None]
        return attended(queries, self.keys.nan_to_num(0.0), self.values.nan_to_num(0.0), visible)


def extend(*given: Tensor) -> Tensor:
    """By the kernel."""
    from longstride.ops.cuda import decode_attention

    return decode_attention.extend(given[0].contiguous(), *given[1:])


def read(*given: Tensor | bool) -> Tensor:
    """By the kernel."""
    from longstride.ops.cuda import decode_attention

    return decode_attention.read(*given)


@pytest.mark.parametrize("name", few(["step", "step of a block", "lines", "mask", "source", "source-self"], 4))
@pytest.mark.parametrize("head", few(HEADS))
def test_heads_of_any_width(name, head, device, dtype):
    """Values, caches, and bits that depend on nothing else."""
    assert compare(case_of(name), table_for(device), device, dtype, head) <= TOLERANCE[dtype]


def test_a_past_in_other_rows_gives_the_bits_of_one_that_was_moved(device, dtype):
    """Two pairs of rows, each at its own slot, with pasts anywhere in the pair."""
    generator = torch.Generator().manual_seed(0)
    rows, heads, slots, head = 4, 2, 112, 16
    packed = torch.randn(rows, 1, 3 * heads * head, generator=generator).to(device, dtype)
    start, slot = torch.tensor([37, 37, 97, 97])[:, None], torch.arange(slots)
    filled = (slot < start)[:, None, :, None].to(device)
    both = torch.randn(2, rows, heads, slots, head, generator=generator).to(device, dtype).masked_fill(~filled, NAN)
    first = torch.arange(rows)[:, None] // 2 * 2
    line = (first + (slot * 5 + torch.arange(rows)[:, None] * 3) // 4 % 2).to(device)
    moved = [old.gather(0, line[:, None, :, None].expand_as(old)) for old in both]
    expected = extend(packed, start.to(device), moved[0], moved[1])
    assert torch.equal(extend(packed, start.to(device), both[0], both[1], line.int()), expected)
    own = start.to(device)[:, None, :, None].expand(-1, heads, 1, head)
    assert all(
        torch.equal(written.gather(2, own), right.gather(2, own)) for written, right in zip(both, moved, strict=True)
    )


@pytest.mark.parametrize(
    ("start", "step"), [([0], 1), ([63], 1), ([64], 1), ([5, 0], 2), ([60, 10], 16), ([0, 47], 17)]
)
def test_a_step_sees_itself_and_what_is_before_it(start, step, device, dtype):
    case = Case(device, dtype, start, step, longest=80)
    found = case.run()
    close(found, case.expected())
    for number, begun in enumerate(start):
        new = case.packed[number].view(step, 3, 2, 16).transpose(0, 2)
        assert torch.equal(case.keys[number, :, begun : begun + step], new[:, 1])
        assert torch.equal(case.values[number, :, begun : begun + step], new[:, 2])
        assert case.keys[number, :, begun + step :].isnan().all()


def test_bits_do_not_depend_on_how_slots_are_cut_into_steps(device, dtype):
    whole = Case(device, dtype, [3, 58], 20, longest=80)
    found = whole.run()
    for cuts in ([0, 1, 9, 20], [0, 17, 20]):
        parts = Case(device, dtype, [3, 58], 20, longest=80)
        steps = [parts.run(first, last) for first, last in pairwise(cuts)]
        assert torch.equal(torch.cat(steps, dim=1), found)
        assert torch.equal(parts.keys.nan_to_num(), whole.keys.nan_to_num())


def test_bits_depend_neither_on_other_rows_nor_on_the_length_of_the_cache(device, dtype):
    found = Case(device, dtype, [9, 30, 0], 4, longest=48).run()
    longer = Case(device, dtype, [9, 30, 0], 4, longest=208)
    assert all(torch.equal(longer.run(rows=slice(row, row + 1))[0], found[row]) for row in range(3))


def test_a_slot_that_is_written_again_is_as_if_it_had_never_been_written(device, dtype):
    once, twice = (Case(device, dtype, [7], 3, longest=32) for _ in range(2))
    right = twice.packed.clone()
    twice.packed = torch.randn_like(right)
    twice.run()
    twice.packed = right
    assert torch.equal(twice.run(), once.run())


def test_what_does_not_fit_is_not_written(device, dtype):
    case = Case(device, dtype, [14], 4, longest=18)
    keys = case.keys
    case.keys, case.values = keys[:, :1, :16], case.values[:, :1, :16]
    case.packed = case.packed[..., : 3 * 16].contiguous()
    case.run()
    assert keys[:, :, 16:].isnan().all()


@pytest.mark.parametrize("each", [False, True])
def test_a_query_that_sees_nothing_of_the_first_keys(each, device, dtype):
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(2, 3, 32, generator=generator).to(device, dtype)
    keys, values = torch.randn(2, 2, 2, 80, 16, generator=generator).to(device, dtype)
    visible = torch.zeros(2, 1, 3 if each else 1, 80, dtype=torch.bool, device=device)
    visible[..., 66:70] = True
    added = torch.zeros(visible.shape, dtype=dtype, device=device).masked_fill(~visible, float("-inf"))
    expected = attended(queries.view(2, 3, 2, 16).transpose(1, 2), keys, values, visible)
    keys[:, :, 70:], values[:, :, :66] = NAN, NAN
    close(read(queries, keys, values, added, each), expected)


# --- in a model ------------------------------------------------------------------------------------------------------


SHAPE = {"width": 64, "heads": 4, "feed_forward": 64}


def memory_of(model: Transformer, sources: int, device: torch.device) -> EncoderState:
    ids = torch.randint(5, 11, (sources, 9), generator=torch.Generator().manual_seed(1)).to(device)
    memory = model.new_memory(sources, 9)
    memory.put(
        torch.arange(sources, device=device), model.encode_source(ids, torch.tensor([9, 4, 7][:sources]).to(device))
    )
    return memory


def alternating(query_slots: Tensor, key_slots: Tensor) -> Tensor:
    """A rule that is not causal: every other slot, and the first."""
    return ((key_slots - query_slots[..., None]) % 2 == 0) | (key_slots == 0)


@pytest.mark.parametrize("rule", [ops.causal, alternating])
@pytest.mark.parametrize("names", few([QUICK, ("mask",), ("source",), ("product",)], 2))
@pytest.mark.parametrize("rows", few([4, 2]))
def test_steps_of_a_model_are_as_they_were(rule, names, rows, device, dtype):
    """Also where several rows read one source."""
    model = tiny_model(3, sharpness=0.3, **SHAPE).to(device, dtype)
    ids = torch.randint(5, 11, (rows, 5), generator=torch.Generator().manual_seed(2)).to(device)
    ids[:, 0] = START
    start = torch.zeros(rows, dtype=torch.int64, device=device)
    found = []
    tables: list[KernelTable | None] = [None, table_for(device, names)]
    for table in tables:
        with torch.inference_mode(), kernels_of(table):
            memory, cache = memory_of(model, 2, device), model.new_cache(rows, 20)
            first = model.extend(ids[:, :3], start, cache, memory, rule)
            second = model.extend(ids[:, 3:], start + 3, cache, memory, rule, span=16)
            found.append(torch.cat([first, second], dim=1))
    torch.testing.assert_close(found[1].double(), found[0].double(), atol=30 * TOLERANCE[dtype], rtol=0)


def test_hidden_states_do_not_depend_on_how_slots_are_cut_into_steps(device, dtype):
    """With all kernels, products included, to the bit; so do caches."""
    model = tiny_model(3, sharpness=0.3, **SHAPE).to(device, dtype)
    many = 18 if device.type == "cuda" else 5  # the interpreter is slow
    ids = torch.randint(5, 11, (2, many), generator=torch.Generator().manual_seed(3)).to(device)
    start = torch.tensor([0, 2], device=device)
    found = []
    with torch.inference_mode(), kernels_of(table_for(device)):
        memory = memory_of(model, 2, device)
        for cuts in ([0, many], [0, 1, 2, many]):
            cache = model.new_cache(2, 30)
            steps = [model.extend(ids[:, a:b], start + a, cache, memory) for a, b in pairwise(cuts)]
            found.append((torch.cat(steps, dim=1), cache))
    (wide, cache), (narrow, other) = found
    assert torch.equal(wide, narrow)
    assert torch.equal(cache.keys, other.keys)
    assert torch.equal(cache.values, other.values)


def test_a_committed_path_leaves_what_a_chain_would(device, dtype):
    """To the bit, through all layers: hidden states, the cache after its slots were moved together, the next step."""
    model = tiny_model(3, sharpness=0.3, **SHAPE).to(device, dtype)
    ids, after = (
        torch.randint(5, 11, (2, many), generator=torch.Generator().manual_seed(4)).to(device) for many in (20, 2)
    )
    parents = torch.tensor([[0, 0, 1, 2, 4, 4, 3, 0, 7], [0, 1, 1, 3, 2, 5, 4, 0, 6]], device=device)
    path = torch.tensor([[0, 2, 4, 5], [0, 1, 2, 5]], device=device)
    drafted, begin = ids[:, 10:], torch.zeros(2, dtype=torch.int64, device=device)
    start, kept = begin + 10, path.shape[1]
    chain = torch.cat([drafted.gather(1, path), drafted[:, kept:]], dim=1)
    whole = torch.cat([path, torch.arange(kept, 10, device=device).expand(2, -1)], dim=1)
    with torch.inference_mode():
        memory, caches = memory_of(model, 2, device), [model.new_cache(2, 30) for _ in range(2)]
    names = tuple(NAMES) if device.type == "cuda" else ("step", "tree")  # the interpreter is slow
    with torch.inference_mode(), kernels_of(table_for(device, names)):
        for cache in caches:
            model.extend(ids[:, :10], begin, cache, memory)
        above, depth, paths = ops.tree_shape(parents)
        tree = model.extend(drafted, start, caches[0], memory, ops.TreeRule(start, above, paths), depth)
        right = model.extend(chain, start, caches[1], memory)
        ops.compact_path(caches[0].keys, caches[0].values, whole, start)
        follow = [model.extend(after, start + kept, cache, memory) for cache in caches]
    assert torch.equal(tree.gather(1, path[..., None].expand(-1, -1, tree.shape[2])), right[:, :kept])
    assert torch.equal(*follow)
    assert torch.equal(*(cache.keys[:, :, :, : 10 + kept + 2] for cache in caches))
    assert torch.equal(*(cache.values[:, :, :, : 10 + kept + 2] for cache in caches))
