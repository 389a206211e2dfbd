"""Drafts that are trees: whatever is in them, exact acceptance gives greedy's output; a chain is one of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, Limits
from longstride.systems.autoregressive.decoder import Greedy
from longstride.verification.drafting import Proposal, View
from longstride.verification.tree import Tree
from tests.decoding.scripted import Scripted, at_random, half_right, oracle
from tests.decoding.test_greedy import LIMITS
from tests.decoding.test_verification import VOCABULARY, Verified, greedy_of, sentences
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH
from tests.runtime.test_graph_exact import refuse


class Bushy(Scripted):
    """Puts what a script says somewhere into a tree whose other nodes are at random."""

    def __init__(self, nodes: int, script: Any, seed: int, chain: bool = False) -> None:
        super().__init__(nodes, script)
        self._generator, self._chain = torch.Generator().manual_seed(seed), chain

    def propose(self, state: Any, view: View, block: int) -> Proposal:
        chain = super().propose(state, view, block)
        rows, nodes = chain.ids.shape
        if self._chain:
            return Proposal(chain.ids, chain.count, torch.arange(nodes).expand(rows, -1))
        ids = torch.randint(0, VOCABULARY, (rows, nodes), generator=self._generator)
        parents = torch.zeros(rows, nodes, dtype=torch.int64)
        for row in range(rows):
            at, taken = 0, 0
            for node in range(nodes):
                on_path = taken < int(chain.count[row]) and bool(torch.rand((), generator=self._generator) < 0.6)
                parents[row, node] = at if on_path else int(torch.randint(0, node + 1, (), generator=self._generator))
                if on_path:
                    ids[row, node], at, taken = chain.ids[row, taken], node + 1, taken + 1
        return Proposal(ids, torch.full((rows,), nodes), parents)


@given(parents=st.lists(st.integers(0, 30), max_size=12))
def test_ancestors_are_those_that_lead_there(parents):
    parents = [parent % (node + 1) for node, parent in enumerate(parents)]
    tree = Tree.of(torch.tensor([parents], dtype=torch.int64))
    for slot in range(len(parents) + 1):
        above, at = {slot}, slot
        while at:
            at = parents[at - 1]
            above.add(at)
        assert set(tree.above[0, slot].nonzero()[:, 0].tolist()) == above
        assert tree.depth[0, slot] == len(above) - 1


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 4),
    capacity=st.integers(1, 4),
    nodes=st.integers(1, 8),
    limits=LIMITS,
    drafter=st.sampled_from(["random", "oracle", "half", "empty", "all-eos"]),
    positions=st.sampled_from(["sinusoidal", "learned", "relative"]),
)
def test_exact_acceptance_is_greedy_for_any_tree(seed, rows, capacity, nodes, limits, drafter, positions):
    model = tiny_model(seed, sharpness=2.0, positions=positions)
    source = random_source(rows, 6, seed=seed)
    greedy, outputs = greedy_of(model, source, limits)
    script = {
        "random": at_random(seed, VOCABULARY),
        "oracle": oracle(outputs),
        "half": half_right(outputs, seed, VOCABULARY),
        "empty": lambda source, prefix, block: [],
        "all-eos": lambda source, prefix, block: [EOS] * block,
    }[drafter]
    decoded = Verified(model, Bushy(nodes, script, seed)).decode(source, limits, capacity=capacity, trace=True)
    assert decoded.tokens == greedy.tokens
    assert decoded.scores == pytest.approx(greedy.scores, abs=1e-9)
    for trace, tokens in zip(decoded.traces, decoded.tokens, strict=True):
        assert trace.replay() == tokens
        assert trace.committed == len(tokens) + 1


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "relative"])
@settings(max_examples=5)
@given(seed=st.integers(0, 999), nodes=st.integers(1, 12))
def test_a_tree_may_reach_past_the_last_position_of_the_model(positions, seed, nodes):
    model, source = tiny_model(seed, positions=positions, longest=8), random_source(3, 6, seed=seed)
    limits = Limits(max_length=7, min_length=7)
    greedy, outputs = greedy_of(model, source, limits)
    drafter = Bushy(nodes, half_right(outputs, seed, VOCABULARY), seed)
    assert Verified(model, drafter).decode(source, limits).tokens == greedy.tokens


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 3), block=st.integers(1, 5))
def test_a_chain_as_a_tree_is_the_chain(seed, rows, block):
    model = tiny_model(seed, sharpness=2.0)
    source, limits = random_source(rows, 6, seed=seed), Limits(max_length=15)
    _, outputs = greedy_of(model, source, limits)
    found = []
    for drafter in (Scripted(block, oracle(outputs)), Bushy(block, oracle(outputs), seed, chain=True)):
        found.append(Verified(model, drafter).decode(source, limits, trace=True))
    chain, tree = found
    assert chain.tokens == tree.tokens
    assert chain.traces == tree.traces


@BOTH
@settings(max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 3),
    nodes=st.integers(1, 8),
    positions=st.sampled_from(["sinusoidal", "learned", "relative"]),
)
def test_graphs_verify_trees_too(graphs, seed, rows, nodes, positions):
    model = tiny_model(seed, torch.float32, sharpness=2.0, positions=positions, longest=17)
    source, limits = random_source(rows, 6, seed=seed), Limits(max_length=15)
    runner = graphs("fp32", 1, tell=refuse)
    greedy = Greedy(model, runner).decode(source, limits)
    outputs = dict(zip(sentences(source), greedy.tokens, strict=True))
    drafter = Bushy(nodes, half_right(outputs, seed, VOCABULARY), seed)
    decoded = Verified(model, drafter, runner=runner).decode(source, limits, trace=True)
    assert "verify-tree" in {key[0] for key in runner.graphs}
    assert decoded.tokens == greedy.tokens
    assert decoded.scores == pytest.approx(greedy.scores, abs=1e-4)


def test_an_oracle_among_others_is_found():
    """A tree of the right token and a wrong one at every depth commits what the chain of right ones would."""
    model, source = tiny_model(5, sharpness=2.0), random_source(1, 6, seed=5)
    greedy, outputs = greedy_of(model, source, Limits())

    class Pairs(Scripted):
        def propose(self, state: Any, view: View, block: int) -> Proposal:
            right = super().propose(state, view, block // 2)
            ids = torch.stack([torch.full_like(right.ids, 6), right.ids], dim=2).flatten(1)
            parents = torch.tensor([[0, 0, *(2 * (node // 2) for node in range(2, block))]])
            return Proposal(ids, 2 * right.count, parents)

    decoded = Verified(model, Pairs(8, oracle(outputs))).decode(source, trace=True)
    assert decoded.tokens == greedy.tokens
    assert decoded.traces[0].iterations == -(-(len(greedy.tokens[0]) + 1) // 5)
