"""Trees that a drafter grows: the likeliest nodes by enumeration, everywhere the same ones, and greedy's output."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride import ops
from longstride.contract import Limits, OptionError
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.draft_verify.decoder import DraftVerify, DraftVerifyOptions
from longstride.verification.acceptance import Rule
from tests.decoding.drafters import KINDS, tiny_drafter
from tests.decoding.test_greedy import LIMITS
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH, Graphs
from tests.runtime.test_graph_exact import refuse

VOCABULARY = 11


def paths_of(tokens: Tensor, parents: Tensor, row: int) -> list[tuple[int, ...]]:
    """The tokens that lead to each node of a tree, its own among them."""
    paths: list[tuple[int, ...]] = [()]
    for token, parent in zip(tokens[row].tolist(), parents[row].tolist(), strict=True):
        assert parent < len(paths), "a parent comes before its children"
        paths.append((*paths[parent], token))
    return paths[1:]


def material(seed: int, rows: int, depth: int, each: int, linked: bool) -> dict[str, Any]:
    torch.manual_seed(seed)
    ids = torch.stack([torch.randperm(VOCABULARY)[:each] for _ in range(rows * depth)]).view(rows, depth, each)
    values = torch.randn(rows, depth, each, dtype=torch.float64) * 2
    newest = torch.randint(0, VOCABULARY, (rows,))
    tables = [torch.randn(VOCABULARY, 3, dtype=torch.float64) for _ in range(2)]
    factors = torch.randn(rows, depth, 3, dtype=torch.float64)
    pairs = (tables[0], factors, tables[1]) if linked else None
    return {"values": values, "ids": ids, "newest": newest, "pairs": pairs}


def every_node(given: dict[str, Any], row: int) -> dict[tuple[int, ...], float]:
    """The logarithm of every path's probability."""
    values, ids = given["values"][row], given["ids"][row]
    found: dict[tuple[int, ...], float] = {(): 0.0}
    for slot in range(len(ids)):
        for path in [path for path in found if len(path) == slot]:
            scores = values[slot]
            if given["pairs"] is not None:
                before, factors, after = given["pairs"]
                last = path[-1] if path else int(given["newest"][row])
                scores = scores + after[ids[slot]] @ (before[last] * factors[row, slot])
            for token, share in zip(ids[slot].tolist(), scores.log_softmax(dim=0).tolist(), strict=True):
                found[(*path, token)] = found[path] + share
    del found[()]
    return found


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000), rows=st.integers(1, 3), depth=st.integers(1, 4), each=st.integers(1, 4),
    nodes=st.integers(1, 12), linked=st.booleans(),
)  # fmt: skip
def test_a_tree_has_the_likeliest_nodes(seed, rows, depth, each, nodes, linked):
    given = material(seed, rows, depth, each, linked)
    tokens, parents = ops.best_tree(**given, nodes=nodes)
    for row in range(rows):
        every = every_node(given, row)
        wanted = sorted(every, key=lambda path: -every[path])[:nodes]
        paths = paths_of(tokens, parents, row)
        assert len(set(paths[: len(wanted)])) == len(wanted)
        # What is taken off by depth may change places that lie closer together than that.
        least = min(every[path] for path in wanted) - 1e-3
        assert all(every[path] >= least for path in paths[: len(wanted)])


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000), rows=st.integers(1, 4), capacity=st.integers(1, 4), limits=LIMITS, kind=KINDS,
    tree=st.integers(1, 9),
)  # fmt: skip
def test_lossless_for_any_drafter(seed, rows, capacity, limits, kind, tree):
    model = tiny_model(seed, sharpness=2.0, encoder_layers=2)
    source = random_source(rows, 6, seed=seed)
    decoder = DraftVerify(
        model, tiny_drafter(seed, **kind), EagerRunner(precision="fp64"), DraftVerifyOptions(tree=tree)
    )
    greedy = Greedy(model, EagerRunner(precision="fp64")).decode(source, limits)
    decoded = decoder.decode(source, limits, capacity=capacity, trace=True)
    assert decoded.tokens == greedy.tokens
    assert decoded.scores == pytest.approx(greedy.scores, abs=1e-9)
    for trace, tokens in zip(decoded.traces, decoded.tokens, strict=True):
        assert trace.replay() == tokens


@BOTH
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 999), rows=st.integers(1, 3), limits=LIMITS, kind=KINDS, tree=st.integers(1, 9))
def test_graphs_grow_the_same_trees(
    graphs: Graphs, seed: int, rows: int, limits: Limits, kind: dict[str, Any], tree: int
) -> None:
    model = tiny_model(seed, torch.float32, sharpness=2.0, encoder_layers=2)
    drafter = tiny_drafter(seed, torch.float32, **kind)
    source = random_source(rows, 6, seed=seed)
    found = []
    for runner in (EagerRunner(precision="fp32"), graphs("fp32", 1, tell=refuse)):
        decoder = DraftVerify(model, drafter, runner, DraftVerifyOptions(tree=tree))
        decoded = decoder.decode(source, limits, trace=True)
        assert decoded.tokens == Greedy(model, runner).decode(source, limits).tokens
        assert decoded.traces is not None
        found.append([[(sorted(event.draft), event.ids) for event in trace.events] for trace in decoded.traces])
    assert found[0] == found[1]


def test_more_nodes_bring_more_tokens():
    """A wide vocabulary of near ties: what a chain misses a tree may hold."""
    model, drafter = tiny_model(3, sharpness=1.0), tiny_drafter(3, link=3, encoder={"encoder": "own"})
    source = random_source(24, 6, seed=3)

    def iterations(tree: int) -> int:
        decoder = DraftVerify(model, drafter, EagerRunner(precision="fp64"), DraftVerifyOptions(tree=tree))
        traces = decoder.decode(source, Limits(max_length=20), trace=True).traces
        assert traces is not None
        return sum(trace.iterations for trace in traces)

    assert iterations(60) < iterations(4)


def test_rules_other_than_exact_are_refused():
    model, drafter = tiny_model(1), tiny_drafter(1)
    with pytest.raises(OptionError, match="tree expects accept=exact"):
        DraftVerify(model, drafter, EagerRunner(), DraftVerifyOptions(tree=4, accept=Rule.from_text("top:2")))
