"""Buffers: no two values live in one at the same time, and random graphs give what tensor code gives."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride.runtime.native.builder import NativeBuilder
from longstride.runtime.native.nodes import GraphValue, Node
from longstride.runtime.native.plan import ALWAYS_ALIAS, MAY_ALIAS, ExecutionPlan, assigned, liveness
from tests.runtime.native.harness import needs_library
from tests.runtime.native.small_graphs import graph_of, numbers, spec_of

pytestmark = needs_library()

SHAPE = (3, 4)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["Add", "Mul", "Sub", "Relu", "Identity", "Transpose", "Reshape", "Slice", "Portion"]),
        st.integers(0, 99),
        st.integers(0, 99),
    ),
    min_size=1,
    max_size=25,
)


def drawn(builder: Any, steps: list[tuple[str, int, int]], values: list[Any]) -> list[Any]:
    """Every step reads two of the values before it; all are [3, 4]"""
    for kind, first, second in steps:
        one, other = (values[number % len(values)] for number in (first, second))
        if kind in ("Add", "Mul", "Sub"):
            found = builder.node(kind, one, other)
        elif kind == "Transpose":
            found = builder.node("Transpose", builder.node("Transpose", one, perm=[1, 0]), perm=[1, 0])
        elif kind == "Reshape":
            found = builder.node(
                "Reshape", builder.node("Reshape", one, builder.integers(2, 6)), builder.integers(*SHAPE)
            )
        elif kind == "Slice":
            found = builder.cut(one, builder.integers(0), builder.integers(SHAPE[0] - second % 2), 0)
            found = builder.node("Pad", found, builder.integers(0, second % 2), "", builder.integers(0))
        elif kind == "Portion":
            outside = builder.node("Relu", values[-1])
            (row,) = builder.in_portions(
                [one, other],
                1 + second % 3,
                lambda x, y, outside=outside: [
                    builder.node(
                        "Add",
                        builder.node("Mul", x, y),
                        builder.cut(outside, builder.integers(0), builder.integers(1), 0),
                    )
                ],
                (torch.float32,),
            )
            found = row
        else:
            found = builder.node(kind, one)
        values.append(found)
    return values


def computed(steps: list[tuple[str, int, int]], values: list[Tensor]) -> list[Tensor]:
    for kind, first, second in steps:
        one, other = (values[number % len(values)] for number in (first, second))
        if kind in ("Add", "Mul", "Sub"):
            found = {"Add": one + other, "Mul": one * other, "Sub": one - other}[kind]
        elif kind == "Relu":
            found = one.relu()
        elif kind == "Slice":
            found = one.clone()
            if second % 2:
                found[-1] = 0
        elif kind == "Portion":
            found = one * other + values[-1].relu()[:1]
        else:
            found = one
        values.append(found)
    return values


@settings(max_examples=60)
@given(steps=STEPS, count=st.integers(1, 3))
def test_random_graphs_give_what_tensor_code_gives(steps: list[tuple[str, int, int]], count: int) -> None:
    fed = {f"x{number}": numbers(*SHAPE, seed=number) for number in range(2)}
    expected = computed(steps, list(fed.values()))[-count:]

    def draw(builder: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        return {f"y{n}": value for n, value in enumerate(drawn(builder, steps, [given["x0"], given["x1"]])[-count:])}

    spec = spec_of(draw, fed, {f"y{number}": tensor for number, tensor in enumerate(expected)})
    graph = graph_of(spec)
    for _ in range(2):  # the second run finds buffers that are not empty
        found = graph(spec.feeds(fed))
        for number, tensor in enumerate(expected):
            assert torch.equal(found[f"y{number}"], tensor)


@settings(max_examples=60)
@given(steps=STEPS)
def test_buffers_are_shared_by_values_that_never_live_together(steps: list[tuple[str, int, int]]) -> None:
    fed = {f"x{number}": numbers(*SHAPE) for number in range(2)}
    spec = spec_of(
        lambda builder, given: {"y": drawn(builder, steps, [given["x0"], given["x1"]])[-1]}, fed, {"y": fed["x0"]}
    )
    plan = ExecutionPlan(NativeBuilder(int8=False).recording(spec))
    by_buffer: dict[int, list[tuple[int, int]]] = {}
    for made, lifetime in plan.liveness.items():
        buffer = plan.buffers.get(plan.numbers[made])
        if buffer is not None:
            by_buffer.setdefault(buffer, []).append((lifetime.first, lifetime.last))
    for spans in by_buffer.values():
        spans.sort()
        assert all(before[1] < after[0] for before, after in pairwise(spans))


def test_a_value_lives_as_long_as_what_lies_in_its_memory() -> None:
    first = Node("Relu", [GraphValue()])
    view = Node("Reshape", [first.outputs[0]])
    part = Node("Slice", [view.outputs[0]])
    other = Node("Relu", [GraphValue()])
    last = Node("Add", [part.outputs[0], other.outputs[0]])
    found = liveness([first, view, part, other, last])
    assert found[first.outputs[0]].last == 4
    buffers = assigned({made: lifetime for made, lifetime in found.items() if made is not view.outputs[0]})
    assert buffers[first.outputs[0]] != buffers[other.outputs[0]]
    assert not ALWAYS_ALIAS & MAY_ALIAS


def test_a_state_stays_in_its_memory() -> None:
    fed = {"x": numbers(*SHAPE), "kept": numbers(*SHAPE, seed=1)}
    spec = spec_of(
        lambda builder, given: {"y": builder.node("Relu", given["x"]), "kept": builder.node("Relu", given["kept"])},
        fed,
        {"y": fed["x"]},
        "kept",
    )
    with pytest.raises(ValueError, match="state kept is expected in the memory of the old"):
        graph_of(spec)
