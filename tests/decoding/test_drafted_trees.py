"""Trees that a drafter grows: the likeliest nodes by enumeration, everywhere the same ones, and greedy's output."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride import ops
from longstride.contract import EOS, Event, Limits
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.blockwise.decoder import Blockwise, BlockwiseOptions
from longstride.systems.blockwise.model import Heads
from longstride.systems.draft_verify.decoder import DraftVerify, DraftVerifyOptions
from longstride.verification.acceptance import LogitSummary, Rule, judge
from longstride.verification.drafting import Proposal
from longstride.verification.tree import Tree, follow
from tests.decoding.drafters import KINDS, picked, tiny_drafter
from tests.decoding.test_blockwise import random_heads
from tests.decoding.test_greedy import LIMITS
from tests.decoding.test_judging import stands
from tests.models import random_source, tiny_model
from tests.runtime.graphs import BOTH, Graphs
from tests.runtime.test_cuda_graph import taped
from tests.runtime.test_graph_exact import refuse

VOCABULARY = 11


def paths_of(tokens: Tensor, parents: Tensor, row: int) -> list[tuple[int, ...]]:
    """The tokens that lead to each node of a tree, its own among them."""
    paths: list[tuple[int, ...]] = [()]
    for token, parent in zip(tokens[row].tolist(), parents[row].tolist(), strict=True):
        assert parent < len(paths), "a parent comes before its children"
        paths.append((*paths[parent], token))
    return paths[1:]


def stands_in_tree(event: Event) -> bool:
    """Whether the tokens that stood lead from what was committed down the tree that the trace tells of."""
    parents = event.parents or tuple(range(event.drafted))
    paths = paths_of(torch.tensor([event.draft]), torch.tensor([parents]), 0) if event.drafted else []
    return event.accepted == 0 or event.ids[: event.accepted] in paths


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


@settings(max_examples=40)
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


@settings(max_examples=25)
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
@settings(max_examples=8)
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


RULES = st.sampled_from(["exact", "top:2", "top:3,gap:1.0", "distance:1"])
HEADS = st.fixed_dictionaries(
    {"k": st.integers(1, 5), "link": st.sampled_from([0, 3]), "first": st.sampled_from(["identity", "learned"])}
)


def heads_of(seed: int, dtype: torch.dtype, kind: dict[str, Any]) -> Heads:
    kind = {**kind, "k": max(kind["k"], 2)} if kind["first"] == "identity" else kind
    return random_heads(seed, **kind).to(dtype)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000), rows=st.integers(1, 4), capacity=st.integers(1, 4), limits=LIMITS, kind=HEADS,
    tree=st.integers(1, 9), adaptive=st.booleans(),
)  # fmt: skip
def test_lossless_for_any_heads(seed, rows, capacity, limits, kind, tree, adaptive):
    model, heads = tiny_model(seed, sharpness=2.0), heads_of(seed, torch.float64, kind)
    source, runner = random_source(rows, 6, seed=seed), EagerRunner(precision="fp64")
    chain = Blockwise(model, heads, runner).decode(source, limits)
    decoder = Blockwise(model, heads, runner, BlockwiseOptions(tree=tree, adaptive=adaptive))
    with picked(seed):
        decoded = decoder.decode(source, limits, capacity=capacity, trace=True)
    assert decoded.tokens == chain.tokens
    assert decoded.scores == pytest.approx(chain.scores, abs=1e-9)
    for trace, tokens in zip(decoded.traces, decoded.tokens, strict=True):
        assert trace.replay() == tokens
        assert max(trace.committed_per_step) <= heads.options.k


def test_heads_predict_the_likeliest_tree():
    """Of heads without a link, by enumeration of their shares."""
    model, heads = tiny_model(5), random_heads(5, 4)
    hidden = torch.randn(2, 16, dtype=torch.float64)
    tokens, parents = heads.grown(hidden, torch.tensor([7, 8]), 4, model, 20)
    shares = model.logits(heads.ahead(hidden, 4)).log_softmax(dim=-1)
    for row in range(2):
        every = {
            path: sum(float(shares[row, slot, token]) for slot, token in enumerate(path))
            for deep in (1, 2, 3)
            for path in itertools.product(range(VOCABULARY), repeat=deep)
        }
        least = sorted(every.values(), reverse=True)[19] - 1e-3
        paths = paths_of(tokens, parents, row)
        assert len(set(paths)) == 20
        assert all(every[path] >= least for path in paths)


@BOTH
@settings(max_examples=8)
@given(
    seed=st.integers(0, 999), rows=st.integers(1, 3), limits=LIMITS, kind=HEADS, tree=st.integers(1, 9), rule=RULES,
    least=st.integers(1, 2),
)  # fmt: skip
def test_graphs_predict_the_same_trees(
    graphs: Graphs, seed: int, rows: int, limits: Limits, kind: dict[str, Any], tree: int, rule: str, least: int
) -> None:
    model, heads = tiny_model(seed, torch.float32, sharpness=2.0), heads_of(seed, torch.float32, kind)
    source, found = random_source(rows, 6, seed=seed), []
    options = BlockwiseOptions(tree=tree, accept=Rule.from_text(rule), min_block=min(least, heads.options.k))
    for runner in (EagerRunner(precision="fp32"), graphs("fp32", 1, tell=refuse)):
        decoded = Blockwise(model, heads, runner, options).decode(source, limits, trace=True)
        assert decoded.traces is not None
        found.append([[(sorted(event.draft), event.ids) for event in trace.events] for trace in decoded.traces])
        assert all(stands_in_tree(event) for trace in decoded.traces for event in trace.events)
    assert found[0] == found[1]


@settings(max_examples=8)
@given(seed=st.integers(0, 999), rows=st.integers(1, 5), kind=HEADS, tree=st.integers(1, 9), rule=RULES)
def test_recorded_steps_predict_the_same_trees(seed, rows, kind, tree, rule):
    model, heads = tiny_model(seed, sharpness=2.0), heads_of(seed, torch.float64, kind)
    source, limits, found = random_source(rows, 6, seed=seed), Limits(max_length=12), []
    for runner in (EagerRunner(precision="fp64"), taped()[0]):
        parts = (runner.place(model), runner.place(heads), runner)
        decoder = Blockwise(*parts, BlockwiseOptions(tree=tree, accept=Rule.from_text(rule)))
        found.append(decoder.decode(source, limits, capacity=4, trace=True))
    assert found[0].tokens == found[1].tokens
    assert found[0].traces == found[1].traces


@BOTH
@settings(max_examples=6)
@given(seed=st.integers(0, 999), rows=st.integers(1, 3), kind=KINDS, tree=st.integers(2, 9))
def test_trees_that_are_judged_apart(graphs: Graphs, seed: int, rows: int, kind: dict[str, Any], tree: int) -> None:
    """Where no n-gram may stand twice, a graph reads and PyTorch judges."""
    model = tiny_model(seed, torch.float32, sharpness=2.0, encoder_layers=2)
    limits, source = Limits(max_length=12, no_repeat_ngram=3), random_source(rows, 6, seed=seed)
    drafter, found = tiny_drafter(seed, torch.float32, **kind), []
    for runner in (EagerRunner(precision="fp32"), graphs("fp32", 1, tell=refuse)):
        decoder = DraftVerify(model, drafter, runner, DraftVerifyOptions(tree=tree))
        decoded = decoder.decode(source, limits, trace=True)
        assert decoded.tokens == Greedy(model, runner).decode(source, limits).tokens
        assert decoded.traces is not None
        found.append([[event.ids for event in trace.events] for trace in decoded.traces])
        assert all(stands_in_tree(event) for trace in decoded.traces for event in trace.events)
    assert found[0] == found[1]


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10_000), kind=KINDS, tree=st.integers(1, 9), rule=RULES, least=st.integers(1, 3),
)  # fmt: skip
def test_a_forgiving_batch_equals_its_rows_one_by_one(seed, kind, tree, rule, least):
    model, source = tiny_model(seed, sharpness=1.0, encoder_layers=2), random_source(4, 8, seed=seed)
    drafter = tiny_drafter(seed, **kind)
    options = DraftVerifyOptions(
        tree=tree, accept=Rule.from_text(rule), min_block=min(least, drafter.options.block + 1)
    )
    decoder, limits = DraftVerify(model, drafter, EagerRunner(precision="fp64"), options), Limits(max_length=12)
    together = decoder.decode(source, limits).tokens
    assert together == [decoder.decode(source.slice(row, row + 1), limits).tokens[0] for row in range(source.rows)]


# What a rule makes of a tree, by the definition: from the root on, one token after another.


def slow_path(tree: dict[str, Any], rule: Rule, least: int, row: int) -> list[int]:
    """The slots of the path that wins."""
    ids, parents, count = tree["ids"][row].tolist(), tree["parents"][row].tolist(), int(tree["count"][row])
    found: list[tuple[int, int, int, list[int]]] = []

    def walk(path: list[int], stood: int) -> None:
        whole = stood == len(path)
        if whole or len(path) < least:
            found.append((len(path), stood, -(path[-1] if path else 0), path))
        if path and ids[path[-1] - 1] == EOS:
            return
        for node in range(count):
            if parents[node] != (path[-1] if path else 0):
                continue
            if stands(rule, tree["at_parents"], ids[node], row, node):
                walk([*path, node + 1], stood + whole)
            elif least > 1 and float(tree["at_parents"].draft_logit[row, node]) > -math.inf:
                walk([*path, node + 1], stood)

    walk([], 0)
    return max(found)[3]


@settings(max_examples=150)
@given(
    seed=st.integers(0, 100_000), rows=st.integers(1, 3), nodes=st.integers(1, 9), rule=RULES, least=st.integers(1, 4),
)  # fmt: skip
def test_the_longest_path_that_a_rule_lets_pass_wins(seed, rows, nodes, rule, least):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 7, (rows, nodes), generator=generator)  # EOS is among them
    parents = torch.stack([torch.randint(0, node + 1, (rows,), generator=generator) for node in range(nodes)], dim=1)
    top = torch.randint(3, 7, (rows, nodes + 1), generator=generator)
    count = torch.randint(0, nodes + 1, (rows,), generator=generator)
    of_draft = -torch.rand(rows, nodes, generator=generator) * 3
    own = ids == top.gather(1, parents)  # what the verifier chooses may stand
    of_draft[~own & (torch.rand(rows, nodes, generator=generator) < 0.1)] = -torch.inf
    rank = torch.randint(0, 4, (rows, nodes), generator=generator)
    at_parents = LogitSummary(top.gather(1, parents), torch.zeros(rows, nodes), None, of_draft, rank)
    draft = Proposal(ids, count, parents)
    chosen = Rule.from_text(rule)
    path, chain, reading = follow(Tree.of(parents), chosen, draft, at_parents, LogitSummary(top), EOS, least)
    verdict = judge(chosen, least, chain, reading, EOS)
    for row in range(rows):
        known = {"ids": ids, "parents": parents, "count": count, "at_parents": at_parents}
        wanted = slow_path(known, chosen, least, row)
        length = int(chain.count[row])
        assert path[row, 1 : length + 1].tolist() == wanted
        assert int(verdict.accepted[row]) == len(wanted)
        ended = bool(wanted) and int(ids[row, wanted[-1] - 1]) == EOS
        next_one = [] if ended else [int(top[row, wanted[-1] if wanted else 0])]
        committed = [int(ids[row, slot - 1]) for slot in wanted] + next_one
        assert verdict.ids[row, : verdict.committed[row]].tolist() == committed
