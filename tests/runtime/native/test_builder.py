"""What is left of a spec: operators that others do on the way are gone, and the numbers are those of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.ops.graph_builder import HIDDEN
from longstride.ops.trace import Tracer
from longstride.runtime.native.builder import NativeBuilder
from tests.runtime.native.harness import needs_library
from tests.runtime.native.small_graphs import graph_of, kinds_of, numbers, spec_of

pytestmark = needs_library()


def test_a_product_takes_the_relu_behind_it_along() -> None:
    x, up, down = numbers(2, 3, 8), numbers(12, 8, seed=1), numbers(8, 12, seed=2)

    def draw(builder: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"y": builder.linear(builder.node("Relu", builder.linear(given["x"], up)), down)}

    expected = F.linear(F.linear(x, up).relu(), down)
    spec = spec_of(draw, {"x": x}, {"y": expected})
    nodes = NativeBuilder(int8=True).recording(spec).nodes
    assert [node.kind for node in nodes] == ["Linear", "Linear"]
    assert [node.attributes[2:4] for node in nodes] == [[0, 1], [1, 0]]  # (of what has no sign, with a Relu)
    torch.testing.assert_close(graph_of(spec)(spec.feeds({"x": x}))["y"], expected)
    close = graph_of(spec, int8=True)(spec.feeds({"x": x}))["y"]
    assert (close - expected).std() < 0.02 * expected.std()


def test_a_product_that_others_read_too_stays_as_it_is() -> None:
    x, weight = numbers(2, 3, 8), numbers(12, 8, seed=1)

    def draw(builder: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        y = builder.linear(given["x"], weight)
        return {"y": y, "z": builder.node("Relu", y)}

    y = F.linear(x, weight)
    spec = spec_of(draw, {"x": x}, {"y": y, "z": y})
    assert kinds_of(spec) == ["Linear", "Relu"]
    found = graph_of(spec)(spec.feeds({"x": x}))
    assert torch.equal(found["y"].relu(), found["z"])
    torch.testing.assert_close(found["y"], y)


def attention(x: Tensor, kept: Tensor, used: int) -> Tensor:
    """[1, step, width] over the first slots of a cache [1, heads, slots, head]"""
    heads = kept.shape[1]
    queries = x.unflatten(2, (heads, -1)).transpose(1, 2)
    found = F.scaled_dot_product_attention(queries, kept[:, :, :used], kept[:, :, :used])
    return found.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("alike", [True, False])
def test_heads_are_split_and_slots_cut_off_on_the_way(alike: bool) -> None:
    x, kept, used = numbers(1, 2, 8), numbers(1, 2, 6, 4, seed=1), 5
    start, seen = torch.tensor([3]), torch.tensor([used])

    def draw(builder: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        after = builder.write(given["kept"], builder.split_heads(given["x"], 2), given["start"])
        mask = builder.constant(torch.zeros(1, 1, 2, used))
        # by one and the same length, or by equal ones
        keys, values = (
            builder.cut(after, builder.integers(0), given["seen"] if alike else builder.node("Relu", given["seen"]), 2)
            if number or alike
            else builder.cut(after, builder.integers(0), given["seen"], 2)
            for number in range(2)
        )
        return {"y": builder.attend(given["x"], keys, values, mask, 2), "kept": after}

    written = kept.clone()
    written[:, :, 3:5] = x.unflatten(2, (2, 4)).transpose(1, 2)
    expected = attention(x, written, used)
    fed = {"x": x, "kept": kept, "start": start, "seen": seen}
    spec = spec_of(draw, fed, {"y": expected}, "kept")
    if alike:
        assert kinds_of(spec) == ["Write", "Attend"]
        torch.testing.assert_close(graph_of(spec)(spec.feeds(fed))["y"], expected)
        assert torch.equal(kept, written)
    else:
        assert kinds_of(spec) == ["Write", "Slice", "Relu", "Slice", "Attend"]


def test_what_nobody_reads_is_left_out_and_what_is_known_worked_out() -> None:
    x = numbers(2, 3)

    def draw(builder: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        builder.node("Relu", given["x"])
        both = builder.node(
            "Concat", builder.integers(3), builder.node("Add", builder.integers(1), builder.integers(1)), axis=0
        )
        turned = [builder.node("Reshape", given["x"], both) for _ in range(2)]
        return {"y": builder.node("Add", *turned)}

    spec = spec_of(draw, {"x": x}, {"y": numbers(3, 2)})
    assert kinds_of(spec) == ["Reshape", "Add"]
    assert torch.equal(graph_of(spec)(spec.feeds({"x": x}))["y"], 2 * x.reshape(3, 2))


def test_what_goes_out_has_memory_of_its_own() -> None:
    x = numbers(2, 3)

    def draw(builder: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        y = builder.node("Relu", given["x"])
        return {"x0": given["x"], "y0": y, "y1": y, "flat": builder.node("Reshape", y, builder.integers(-1))}

    y = x.relu()
    spec = spec_of(draw, {"x": x}, {"x0": x, "y0": y, "y1": y, "flat": y.flatten()})
    graph = graph_of(spec)
    found = graph(spec.feeds({"x": x}))
    assert len({tensor.data_ptr() for tensor in (x, *found.values())}) == 5
    graph(spec.feeds({"x": -x}))
    assert torch.equal(found["x0"], x)
    assert all(torch.equal(found[name], y) for name in ("y0", "y1"))
    assert torch.equal(found["flat"], y.flatten())


def test_a_row_that_sees_nothing_is_no_nan() -> None:
    x, memory = numbers(1, 1, 4), numbers(1, 2, 3, 2)

    def draw(builder: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        mask = builder.constant(torch.full((1, 1, 1, 3), HIDDEN))
        return {"y": builder.attend(given["x"], given["memory"], given["memory"], mask, 2)}

    fed = {"x": x, "memory": memory}
    spec = spec_of(draw, fed, {"y": x})
    assert graph_of(spec)(spec.feeds(fed))["y"].isfinite().all()


def test_misuse() -> None:
    builder = NativeBuilder(int8=False)
    with pytest.raises(ValueError, match="the operator Loop is not known here"):
        builder.node("Loop", builder.integers(1))
    with pytest.raises(ValueError, match="Add expects no attribute axis here"):
        builder.node("Add", builder.integers(1), builder.integers(1), axis=0)
    with pytest.raises(ValueError, match="Cast expects the attribute to, found none"):
        builder.node("Cast", builder.integers(1))


def test_what_is_traced_pads_several_axes_and_finds_the_first_that_is_true() -> None:
    """Each axis is padded by a node of its own, and booleans are searched as integers."""
    x = numbers(2, 5)

    def record(builder: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        value = Tracer(builder).value(given["x"], torch.float32, [2, 5])
        return {"padded": F.pad(value, (1, 2, 0, 3), value=7.0).handle, "first": (value > 0).argmax(dim=1).handle}

    expected = {"padded": F.pad(x, (1, 2, 0, 3), value=7.0), "first": (x > 0).int().argmax(dim=1)}
    spec = spec_of(record, {"x": x}, expected)
    found = graph_of(spec)(spec.feeds({"x": x}))
    assert all(torch.equal(found[name], wanted) for name, wanted in expected.items())
