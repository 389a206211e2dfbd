"""Operators of our own that do the work of several: bit for bit what the plain ones give one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import Feeds
from tests.runtime.native.harness import Array, OperatorError, carry_out, needs_library, rows_of, same
from tests.runtime.native.small_graphs import graph_of, numbers, spec_of
from tests.runtime.native.test_shapes import whole

pytestmark = [needs_library(), pytest.mark.usefixtures("variant")]


def coarse(shape: tuple[int, ...], seed: int = 0) -> Array:
    """Numbers among which are equals"""
    return np.round(rows_of(shape, seed), 1)


@settings(max_examples=60)
@given(st.integers(1, 4), st.integers(1, 90), st.lists(st.integers(-1, 89), max_size=6), st.integers(0, 99))
def test_best_but_for_what_is_forbidden(rows: int, length: int, ids: list[int], seed: int) -> None:
    x = coarse((rows, 1, length), seed)
    forbidden = whole(*(number % length for number in ids), *([-1] if -1 in ids else []))
    allowed = x.copy()
    allowed[..., forbidden] = -np.inf
    expected = carry_out("ArgMax", allowed, attributes=[-1, 0])[0]
    same(carry_out("Best", x, None, forbidden)[0], expected)


@pytest.mark.parametrize("threads", [1, 2])
def test_best_of_a_vocabulary(threads: int) -> None:
    x = coarse((1, 11, 16000))
    x[0, :, 3] = x[0, :, 15999] = 100.0
    x[0, 4, 7000] = x[0, 4, 7001] = 50.0
    bias = np.zeros(16000, np.float32)
    bias[[3, 15999]] = -np.inf
    same(carry_out("Best", x, None, whole(15999, 3), threads=threads)[0], np.argmax(x + bias, axis=-1))
    assert carry_out("Best", x, None, whole(15999, 3))[0][0, 4] == 7000
    with pytest.raises(OperatorError, match="outside"):
        carry_out("Best", x, None, whole(16000))


@settings(max_examples=40)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 90), st.sampled_from(["whole", "rows", "row", "one"]))
def test_best_of_a_sum(rows: int, step: int, length: int, kind: str) -> None:
    x = coarse((rows, step, length))
    shape = {"whole": x.shape, "rows": (rows, 1, length), "row": (length,), "one": (1, step, length)}[kind]
    y = coarse(shape, 1)
    plain = carry_out("ArgMax", carry_out("Add", x, y)[0], attributes=[-1, 0])[0]
    same(carry_out("Best", x, y)[0], plain)


@settings(max_examples=40)
@given(st.tuples(st.integers(1, 3), st.integers(1, 30), st.integers(1, 70)), st.integers(-3, 2), st.booleans())
def test_largest_and_where(shape: tuple[int, ...], axis: int, keep: bool) -> None:
    x = coarse(shape)
    largest, where = carry_out("Largest", x, attributes=[axis, int(keep)], outputs=2)
    same(largest, carry_out("ReduceMax", x, whole(axis), attributes=[int(keep)])[0])
    same(where, carry_out("ArgMax", x, attributes=[axis, int(keep)])[0])


@settings(max_examples=40)
@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 7, 100, 2049, 16000]))
def test_some_of_the_shares(rows: int, asked: int, length: int) -> None:
    x = rows_of((rows, length)) * 3
    places = np.random.default_rng(0).integers(-length, length, size=(rows, asked))
    plain = carry_out("GatherElements", carry_out("LogSoftmax", x, attributes=[-1])[0], places, attributes=[-1])[0]
    same(carry_out("LogShares", x, places)[0], plain)
    same(carry_out("LogShares", x, places, threads=2)[0], plain)


@settings(max_examples=40)
@given(
    st.integers(1, 3), st.integers(1, 9), st.integers(0, 9), st.sampled_from([(), (1,), (2,)]),
    st.sampled_from([1, 7, 2049]), st.sampled_from([1, 2]),
)  # fmt: skip
def test_shares_of_chosen_slots(
    batch: int, slots: int, chosen: int, inner: tuple[int, ...], length: int, threads: int
) -> None:
    random = np.random.default_rng(0)
    x = rows_of((batch, slots, *inner, length)) * 3
    rows = random.integers(-slots, slots, size=(batch, chosen, 1))
    places = random.integers(0, length, size=(batch, chosen, *inner, 2))
    plain = carry_out("LogShares", carry_out("GatherND", x, rows, attributes=[1])[0], places)[0]
    same(carry_out("LogShares", x, places, rows, threads=threads)[0], plain)


def test_chosen_slots_that_are_not_there_are_told() -> None:
    with pytest.raises(OperatorError, match="outside"):
        carry_out("LogShares", rows_of((1, 3, 5)), np.zeros((1, 1, 1), np.int64), np.full((1, 1, 1), 3))


@settings(max_examples=30)
@given(st.integers(1, 2), st.integers(1, 4), st.integers(1, 70), st.integers(1, 70), st.sampled_from([1, 2]))
def test_steps_of_a_link(rows: int, slots: int, classes: int, rank: int, threads: int) -> None:
    random = np.random.default_rng(0)
    before, after = rows_of((50, rank)), rows_of((50, rank), 1)
    earlier, ids = (random.integers(0, 50, size=(rows, slots, classes)) for _ in range(2))
    factors, values = rows_of((rows, slots, rank), 2), coarse((rows, slots, classes), 3)
    left = carry_out("Mul", before[earlier], factors[:, :, None])[0]
    right = carry_out("Transpose", after[ids], attributes=[0, 1, 3, 2])[0]
    scores = carry_out("Add", carry_out("MatMul", left, right)[0], values[:, :, None])[0]
    plain = carry_out("ArgMax", scores, attributes=[-1, 0])[0]
    same(carry_out("Chain", before, earlier, factors, after, ids, values, threads=threads)[0], plain)


def test_ids_outside_of_a_link_are_told() -> None:
    table, ids = rows_of((5, 4)), np.full((1, 1, 3), 5)
    with pytest.raises(OperatorError, match="outside"):
        carry_out("Chain", table, ids, rows_of((1, 1, 4)), table, ids, rows_of((1, 1, 3)))


class Recorded:
    """A builder's nodes of a small spec, by kind."""

    def __init__(self, draw: Any, read_alone: bool = False) -> None:
        from longstride.runtime.native.builder import NativeBuilder
        from longstride.runtime.native.fusions import fused, read_by
        from longstride.runtime.native.nodes import GraphValue

        builder = NativeBuilder(int8=False)
        found = draw(builder, GraphValue())
        nodes = read_by(builder._nodes, set(found)) if read_alone else builder._nodes
        self.kinds = [node.kind for node in fused(nodes, found)]


def test_what_is_done_together() -> None:
    weight = torch.ones(4, 4)

    def twice(builder: Any, x: Any) -> Any:
        return [
            builder.node(
                "ArgMax", builder.node("Add", builder.linear(x, weight), builder.linear(x, weight)), axis=-1, keepdims=0
            )
        ]

    def share(builder: Any, x: Any) -> Any:
        return [builder.node("GatherElements", builder.node("LogSoftmax", x, axis=-1), x, axis=-1)]

    def both(builder: Any, x: Any) -> Any:
        where = builder.node("ArgMax", x, axis=2, keepdims=0)
        return [builder.node("ReduceMax", x, builder.integers(2), keepdims=0), where]

    assert Recorded(twice).kinds == ["Linear", "Linear", "Best"]

    def share_of_some(builder: Any, x: Any) -> Any:
        some = builder.node("GatherND", x, builder.column(x), batch_dims=1)
        return [builder.node("GatherElements", builder.node("LogSoftmax", some, axis=-1), x, axis=-1)]

    assert Recorded(share).kinds == ["LogShares"]
    assert Recorded(share_of_some).kinds == ["Unsqueeze", "LogShares"]
    assert Recorded(both).kinds == ["Largest"]


def test_what_somebody_else_reads_stays() -> None:
    weight = torch.ones(4, 4)

    def twice(builder: Any, x: Any) -> Any:
        total = builder.node("Add", builder.linear(x, weight), builder.linear(x, weight))
        return [builder.node("ArgMax", total, axis=-1, keepdims=0), total]

    def share(builder: Any, x: Any) -> Any:
        shares = builder.node("LogSoftmax", x, axis=-1)
        return [builder.node("GatherElements", shares, x, axis=-1), shares]

    def apart(builder: Any, x: Any) -> Any:
        where = builder.node("ArgMax", x, axis=2, keepdims=1)
        return [builder.node("ReduceMax", x, builder.integers(2), keepdims=0), where]

    assert Recorded(twice).kinds == ["Linear", "Linear", "Add", "ArgMax"]
    assert Recorded(share).kinds == ["LogSoftmax", "GatherElements"]
    assert sorted(Recorded(apart).kinds) == ["ArgMax", "ReduceMax"]


def test_what_lies_side_by_side_is_read_where_it_lies() -> None:
    rows, step, heads, head, slots = 2, 3, 2, 8, 7
    qkv = rows_of((rows, step, 3 * heads * head))
    queries, new, _ = np.split(qkv, 3, axis=-1)
    keys, values = rows_of((rows, heads, slots, head), 1), rows_of((rows, heads, slots, head), 2)
    mask = np.zeros((1, 1, 1, slots), np.float32)
    plain = carry_out("Attend", queries, keys, values, mask, attributes=[heads])[0]
    same(carry_out("Attend", qkv, keys, values, mask, attributes=[heads, 0, 3])[0], plain)
    start, apart = whole(1, 4), [keys.copy(), keys.copy()]
    same(
        carry_out("Write", apart[0], qkv, start, attributes=[heads, 1, 3])[0],
        carry_out("Write", apart[1], new, start, attributes=[heads])[0],
    )


def test_a_split_goes_where_nobody_else_reads_it() -> None:
    def step(builder: Any, x: Any, other: bool) -> Any:
        queries, keys, values = builder.node("Split", x, outputs=3, axis=-1, num_outputs=3)
        kept = [
            builder.write(builder.constant(torch.zeros(1)), builder.split_heads(new, 2), x) for new in (keys, values)
        ]
        queries = builder.cut(queries, builder.integers(0), builder.integers(1), 1) if other else queries
        return [builder.attend(queries, *kept, x, 2)]

    assert Recorded(lambda builder, x: step(builder, x, False), True).kinds == ["Write", "Write", "Attend"]
    assert "Split" in Recorded(lambda builder, x: step(builder, x, True), True).kinds


def test_some_of_a_split_may_be_read_by_nobody() -> None:
    def second(builder: Any, x: Any) -> Any:
        return [builder.node("Relu", builder.node("Split", x, outputs=2, axis=-1, num_outputs=2)[1])]

    assert Recorded(second).kinds == ["Split", "Relu"]


@pytest.mark.parametrize("int8", [True, False])
@pytest.mark.parametrize("vocabulary", [2048, 2100, 4001])
@pytest.mark.parametrize("rows", [1, 5, 17, 33])
def test_the_best_outputs_of_a_product(rows: int, vocabulary: int, int8: bool) -> None:
    """Found by the largest of every panel: the same as among all outputs, but for what is forbidden."""
    weight, x = numbers(vocabulary, 32), {"x": numbers(1, rows, 32, seed=rows)}
    never = torch.tensor([0, 3, 31, 32, vocabulary - 1])

    def record(builder: Any, given: Any) -> Any:
        logits, forbidden = builder.linear(given["x"], weight), builder.constant(never)
        values, ids = builder.largest_allowed(logits, forbidden, 8, vocabulary)
        return {"y": logits, "best": builder.best(logits, forbidden, vocabulary), "values": values, "ids": ids}

    whole = torch.zeros(1, rows, dtype=torch.int64)
    some = torch.zeros(1, rows, 8)
    outputs = {"y": torch.zeros(1, rows, vocabulary), "best": whole, "values": some, "ids": some.long()}
    graph = graph_of(spec_of(record, x, outputs), int8, threads=2)
    linears = [node for node in graph.plan.nodes if node.kind == "Linear"]
    assert [len(node.outputs) for node in linears] == [2]
    found = graph(Feeds(x, {}))
    allowed = found["y"].index_fill(-1, never, float("-inf"))
    values, ids = allowed.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(found["best"], ids[..., 0])
    assert torch.equal(found["ids"], ids[..., :8])
    assert torch.equal(found["values"], values[..., :8])
