"""The machine: its structures, its memory, its clock, and what it says where something is wrong."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from longstride.runtime.native.graph import MachineError
from longstride.runtime.native.library import CBuffer, CInstruction, CMachine, CValue, library, operator_codes
from longstride.runtime.native.plan import VALUE
from longstride.runtime.native.weights import held, packed
from tests.runtime.native.harness import needs_library
from tests.runtime.native.small_graphs import graph_of, numbers, spec_of

pytestmark = needs_library()


def test_python_and_c_agree_on_structures() -> None:
    sizes = (ctypes.c_int64 * 4)()
    library().sizes_of(sizes)
    assert list(sizes) == [ctypes.sizeof(kind) for kind in (CValue, CInstruction, CBuffer, CMachine)]
    assert VALUE.itemsize == sizes[0]
    codes = operator_codes()
    assert codes["Abs"] == 0
    assert sorted(codes.values()) == list(range(len(codes)))


def test_one_graph_serves_all_shapes() -> None:
    def draw(builder: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"y": builder.node("Add", builder.node("Mul", given["x"], given["x"]), given["x"])}

    spec = spec_of(draw, {"x": numbers(1, 1)}, {"y": numbers(1, 1)})
    spec.inputs["x"] = spec.outputs["y"] = (torch.float32, ("rows", "width"))  # type: ignore[index]
    graph = graph_of(spec, threads=2)
    for rows, width in ((1, 1), (5, 300), (2, 3), (400, 200), (0, 3), (7, 1)):
        x = numbers(rows, width)
        assert torch.equal(graph(spec.feeds({"x": x}))["y"], x * x + x)


def test_what_is_wrong_is_said() -> None:
    x, ids = numbers(4, 2), torch.tensor([1, 9])
    spec = spec_of(
        lambda builder, given: {"y": builder.node("Gather", builder.node("Relu", given["x"]), given["ids"], axis=0)},
        {"x": x, "ids": ids},
        {"y": numbers(2, 2)},
    )
    graph = graph_of(spec)
    with pytest.raises(MachineError, match=r"Gather, operator 2 of 2: .*index"):
        graph(spec.feeds({"x": x, "ids": ids}))
    ids[1] = 2
    assert torch.equal(graph(spec.feeds({"x": x, "ids": ids}))["y"], x.relu()[ids])


@pytest.mark.parametrize("shape", [(3, 2), (2, 3, 1), (7,)])
def test_an_output_of_another_shape_than_was_said_is_refused(shape: tuple[int, ...]) -> None:
    x = numbers(2, 3)
    spec = spec_of(lambda builder, given: {"y": builder.node("Relu", given["x"])}, {"x": x}, {"y": numbers(*shape)})
    with pytest.raises(MachineError, match="the output y is expected as"):
        graph_of(spec)(spec.feeds({"x": x}))


def test_an_output_larger_than_its_memory_is_refused() -> None:
    x = numbers(2, 3)
    spec = spec_of(lambda builder, given: {"y": builder.node("Relu", given["x"])}, {"x": x}, {"y": numbers(2)})
    with pytest.raises(MachineError, match="larger than the memory"):
        graph_of(spec)(spec.feeds({"x": x}))


def test_operators_are_timed() -> None:
    x = numbers(2, 3)
    spec = spec_of(
        lambda builder, given: {"y": builder.node("Relu", builder.node("Abs", given["x"]))}, {"x": x}, {"y": x}
    )
    spent = graph_of(spec).clocked(spec.feeds({"x": x}), 10)
    assert [kind for kind, _ in spent] == ["Abs", "Relu"]
    assert all(0 <= took < 1e6 for _, took in spent)


def test_equal_weights_are_kept_once_and_given_back() -> None:
    weight, bias = numbers(32, 16), numbers(32)
    one, other = packed(weight, bias, 8), packed(weight.clone(), bias.clone(), 8)
    assert one is other
    assert packed(weight, bias, 32) is not one
    assert packed(weight, None, 8) is not one
    table = held(numbers(50, 4))
    assert held(numbers(50, 4)) is table
    weight[0, 0] += 1
    assert packed(weight, bias, 8) is not one
    assert held(numbers(4, 50)) is not table
    del one, other, table
    gc.collect()
    assert packed(weight, bias, 8).address
