"""Trees of drafts by kernels of our own, against the definitions of their operations.

On a CUDA device, or in Triton's interpreter (TRITON_INTERPRET=1).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride import ops
from longstride.ops.cuda.self_test import TOLERANCE
from longstride.ops.cuda.table import MOST_NODES, TREE_CANDIDATES
from longstride.ops.kernels import kernels_of
from longstride.verification.drafting import tree_room
from tests.nn.running_kernels import few, table_for, where

ON_A_GPU = [torch.float32, torch.float16, torch.bfloat16]


class Growth:
    """Random slots, with a link or without."""

    def __init__(
        self, seed: int, rows: int, depth: int, vocabulary: int, rank: int, dtype: torch.dtype = torch.float32
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        device = where()

        def random(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).to(device, dtype)

        self.logits = 2 * random(rows, 1 + depth, vocabulary)[:, 1:]  # which do not lie side by side
        self.newest = torch.randint(vocabulary, (rows,), generator=generator).to(device)
        self.gate, self.before, self.after = None, None, None
        if rank:
            self.gate, self.before, self.after = (
                random(*shape) for shape in ((rows, depth, rank), (vocabulary, rank), (vocabulary, rank))
            )

    def grown(self, nodes: int, own: bool, candidates: int = TREE_CANDIDATES) -> tuple[Tensor, Tensor]:
        """By kernels, into columns of a wider table behind the newest tokens, or by the definition in float64"""
        link = (self.gate, self.before, self.after)
        if not own:
            exact = (None if one is None else one.double() for one in link)
            found: Any = ops.tree_tokens(self.logits.double(), self.newest, *exact, candidates, nodes)
            return found
        table = torch.full((len(self.newest), 2 + nodes), -1, device=self.newest.device)
        table[:, 0] = self.newest
        with kernels_of(kernels := table_for(self.logits.device)):
            given = (self.logits, table[:, 0], *link, candidates, nodes)
            assert kernels.find("tree_tokens", *given) is not None
            shape = tree_room(table[:, 1:-1])
            tokens, parents = ops.tree_tokens(*given, table[:, 1:-1], shape)
        assert_same_shape(shape, ops.tree_shape(parents))
        assert torch.equal(tokens, table[:, 1:-1])
        assert torch.equal(table[:, 0], self.newest)
        assert table[:, -1].eq(-1).all()
        return tokens.cpu(), parents.cpu()

    def logarithm(self, path: tuple[int, ...], row: int) -> float:
        """Of a path's probability, in float64; shares are those among the candidates"""
        total, before = 0.0, int(self.newest[row])
        for slot, token in enumerate(path):
            scores = self.logits[row, slot].double()
            places = scores.topk(min(TREE_CANDIDATES, len(scores)))[1]
            if self.gate is not None and self.before is not None and self.after is not None:
                asked = self.before[before].double() * (1 + self.gate[row, slot].double())
                scores = scores + self.after.double() @ asked
            total += float(scores[token] - scores[places].logsumexp(0))
            before = token
        return total


def nodes_of(tokens: Tensor, parents: Tensor, row: int, count: int) -> list[tuple[int, ...]]:
    """The paths that lead to the first so many."""
    paths: list[tuple[int, ...]] = [()]
    for token, parent in zip(tokens[row, :count].tolist(), parents[row, :count].tolist(), strict=True):
        assert parent < len(paths), "a parent comes before its children"
        paths.append((*paths[parent], token))
    return paths[1:]


@pytest.mark.gpu
@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 3),
    depth=st.integers(1, 6),
    vocabulary=st.integers(2, 300),
    rank=st.sampled_from([0, 1, 3, 16, 24, 64]),
    nodes=st.integers(1, MOST_NODES),
    candidates=st.sampled_from([1, 5, 16, 33, TREE_CANDIDATES]),
)
def test_a_tree_is_the_one_of_the_definition(seed, rows, depth, vocabulary, rank, nodes, candidates):
    """The same nodes, parents first, whatever their order; zeros where there are no more."""
    growth = Growth(seed, rows, depth, vocabulary, rank)
    (tokens, parents), expected = growth.grown(nodes, True, candidates), growth.grown(nodes, False, candidates)
    meant = ops.tree_size(depth, min(candidates, vocabulary), nodes)
    for row in range(rows):
        assert sorted(nodes_of(tokens, parents, row, meant)) == sorted(nodes_of(*expected, row, meant))
    assert tokens[:, meant:].eq(0).all()
    assert parents[:, meant:].eq(0).all()


@pytest.mark.gpu
@settings(max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 2),
    depth=st.integers(1, 5),
    vocabulary=st.integers(2, 256),
    rank=st.sampled_from([1, 16, 24]),
    nodes=st.integers(1, MOST_NODES),
)
def test_a_tree_from_states_is_one_from_their_logits(seed, rows, depth, vocabulary, rank, nodes):
    """Of so few ids that each is a class of its own."""
    growth, width = Growth(seed, rows, depth, vocabulary, rank), 48
    generator = torch.Generator().manual_seed(seed)
    hidden, weight, gate_weight = (
        torch.randn(*shape, generator=generator).to(growth.logits.device) * scale
        for shape, scale in (((rows, depth, width), 1), ((vocabulary, width), 0.4), ((rank, width), 0.1))
    )
    given = (hidden, growth.newest, weight, gate_weight, growth.before, growth.after, TREE_CANDIDATES, nodes)
    exact = (one.double() if isinstance(one, Tensor) and one.is_floating_point() else one for one in given)
    expected = ops.tree_tokens_of_states(*exact)
    with kernels_of(kernels := table_for(hidden.device)):
        assert kernels.find("tree_tokens_of_states", *given) is not None
        found = ops.tree_tokens_of_states(*given)
    meant = ops.tree_size(depth, min(TREE_CANDIDATES, vocabulary), nodes)
    for row in range(rows):
        mine, right = (nodes_of(*(one.cpu() for one in tree), row, meant) for tree in (found, expected))
        assert sorted(mine) == sorted(right)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", few(ON_A_GPU))
@pytest.mark.parametrize("vocabulary", few([1000, 16000, 40000]))
@pytest.mark.parametrize(("rank", "nodes"), few([(64, 16), (64, 32), (0, MOST_NODES)]))
def test_its_nodes_are_as_likely_in_every_type(dtype, vocabulary, rank, nodes):
    """Within rounding: of near equals either may be there. A candidate that is the third best of its stripe is missed:
    with logits as flat as these, one node of 63 then is the next likely one, up to 0.083 less so in float64 too."""
    growth = Growth(1, 2, 10, vocabulary, rank, dtype)
    if rank:
        growth.before, growth.after = growth.before / 4, growth.after / 4
    (tokens, parents), expected = growth.grown(nodes, True), growth.grown(nodes, False)
    for row in range(2):
        found, right = (
            torch.tensor(sorted(growth.logarithm(path, row) for path in nodes_of(*tree, row, nodes)))
            for tree in ((tokens, parents), [one.cpu() for one in expected])
        )
        assert (found - right).abs().max() <= 40 * TOLERANCE[dtype] + 0.15


@pytest.mark.gpu
@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    vocabulary=st.integers(1, 200),
    count=st.integers(1, TREE_CANDIDATES),
    ties=st.booleans(),
    dtype=st.sampled_from(ON_A_GPU),
)
def test_candidates_are_the_largest_and_of_equals_the_first(seed, vocabulary, count, ties, dtype):
    device = where()
    if dtype == torch.bfloat16 and device.type == "cpu":
        dtype = torch.float16  # which the interpreter can read
    from longstride.ops.cuda.tree_candidates import best_of_stripes, candidates_of

    logits = torch.randn(2, 2, vocabulary, generator=torch.Generator().manual_seed(seed)).to(dtype)
    logits, count = logits.round() if ties else logits, min(count, vocabulary)
    values, ids = (one.cpu() for one in candidates_of(*best_of_stripes(logits.to(device)), count, dtype))
    right, order = logits.float().sort(dim=-1, descending=True, stable=True)
    assert torch.equal(ids.long().sort(dim=-1)[0], order[..., :count].sort(dim=-1)[0])
    assert torch.equal(values.sort(dim=-1, descending=True)[0], right[..., :count])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:All-NaN slice:RuntimeWarning")
@pytest.mark.gpu
@pytest.mark.parametrize("broken", [float("nan"), float("-inf"), float("inf")])
def test_trees_stay_within_the_vocabulary_whatever_the_logits_are(broken):
    growth = Growth(0, 2, 4, 37, 16)
    for logits in (torch.full_like(growth.logits, broken), growth.logits.masked_fill(growth.logits > 0, broken)):
        growth.logits = logits
        tokens, parents = growth.grown(12, True)
        assert ((tokens >= 0) & (tokens < 37)).all()
        assert ((parents >= 0) & (parents <= torch.arange(12))).all()


@pytest.mark.gpu
def test_a_row_does_not_depend_on_the_others():
    growth = Growth(3, 3, 5, 90, 16)
    tokens, parents = growth.grown(20, True)
    for row in range(3):
        alone = Growth(3, 3, 5, 90, 16)
        assert alone.gate is not None
        alone.logits, alone.newest, alone.gate = (
            one[row : row + 1] for one in (alone.logits, alone.newest, alone.gate)
        )
        found = alone.grown(20, True)
        assert torch.equal(found[0][0], tokens[row])
        assert torch.equal(found[1][0], parents[row])


def assert_same_shape(found: Any, right: Any) -> None:
    """Of paths, what lies behind their ends is nobody's business."""
    assert torch.equal(found[0], right[0])
    assert torch.equal(found[1], right[1])
    column = torch.arange(right[2].shape[2], device=right[2].device)
    meant = column <= right[1][..., None] + 1
    assert torch.equal(found[2] * meant, right[2] * meant)


def random_parents(seed: int, rows: int, nodes: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(0, node + 1, (rows,), generator=generator) for node in range(nodes)], dim=1)


@pytest.mark.gpu
@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 4), nodes=st.integers(1, MOST_NODES), chain=st.booleans())
def test_shapes_and_moves_are_those_of_the_definitions(seed, rows, nodes, chain):
    device = where()
    parents = torch.arange(nodes).expand(rows, -1) if chain else random_parents(seed, rows, nodes)
    parents = parents.to(device)
    expected = ops.tree_shape(parents)
    with kernels_of(table_for(device)):
        above, *rest = ops.tree_shape(parents)
    assert_same_shape((above, *rest), expected)

    generator = torch.Generator().manual_seed(seed)
    shape = (2, 3, rows, 2, 9 + nodes, 24)
    keys, values = torch.randn(*shape, generator=generator).to(device)
    start = torch.randint(0, 9, (rows, 2), generator=generator).to(device)[:, 0]
    ends = torch.randint(0, nodes + 1, (rows, 1, 1), generator=generator).to(device)
    on_path = above.gather(1, ends.expand(-1, 1, nodes + 1))[:, 0]
    slots = torch.arange(nodes + 1, device=device)
    path = torch.where(on_path, slots, nodes + 1).sort(dim=1)[0]
    path = torch.where(path > nodes, slots if seed % 2 else 0, path)  # beyond its end: any
    right = [one.clone() for one in (keys, values)]
    ops.compact_path(*right, path, start)
    with kernels_of(table_for(device)):
        ops.compact_path(keys, values, path, start)
    assert torch.equal(keys, right[0])
    assert torch.equal(values, right[1])
