"""The ONNX Runtime runner: one graph a program, and one more for steps of width one. Knows no system.

In int8 the operators that are fastest on such a processor (processor.Operators) are used only after a self-test.
"""

from __future__ import annotations

import ctypes
from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F

from longstride.contract import Feeds, GraphSpec
from longstride.ops.graph_builder import Handle as Value
from longstride.runtime.graph_runner import GraphRunner
from longstride.runtime.graphs import renewed_in_children
from longstride.runtime.libraries import silently
from longstride.runtime.onnx_builder import OnnxBuilder
from longstride.runtime.onnx_graph import OnnxGraph
from longstride.runtime.processor import PLAIN, Operators, operators_for

onnxruntime = silently("onnxruntime")

CLOSE, NARROWLY_CLOSE = 0.02, 0.04
"""Errors, by the results' own spread, that are taken for rounding to 8 and to 7 bits; overflows are far worse."""


class OnnxRunner(GraphRunner):
    """Carries programs out by ONNX Runtime."""

    name = "onnx"

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        renewed_in_children(self)

    def renew(self) -> None:
        """In a process that was forked: ONNX Runtime's threads are not there, so that graphs are built once more. The
        old ones are never released: that would wait for their threads."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.graphs))
        self.graphs = {}

    def describe(self) -> str:
        """``ONNX Runtime 1.31.1, int8 on 2 threads of aarch64 with int8 dot products (asimddp); ...``"""
        processor = self.processor.describe() if self.precision == "int8" else self.processor.machine
        return f"ONNX Runtime {onnxruntime.__version__}, {self.precision} on {self.threads} threads of {processor}"

    def variant(self, feeds: Feeds) -> Hashable:
        """Whether for steps of width one."""
        return is_one_token(feeds)

    def build(self, name: str, spec: GraphSpec, variant: Hashable) -> OnnxGraph:
        """With the operators that passed on this processor."""
        int8, narrow, operators = self.precision == "int8", self.processor.saturates, operators_for(self.processor)
        tried = int8 and self_test(operators, narrow)
        builder = OnnxBuilder(int8, bool(variant), narrow, operators if tried else PLAIN)
        return OnnxGraph(spec, builder.model(name, spec).SerializeToString(), self.threads)


def is_one_token(feeds: Feeds) -> bool:
    """Whether this is a step (it keeps a state, and reads ids [rows, step] or says how wide it is) of width one."""
    ids = feeds.inputs.get("ids")
    return bool(feeds.state) and (feeds.sizes.get("step") if ids is None else ids.shape[1]) == 1


@cache
def self_test(operators: Operators, narrow: bool = False) -> bool:
    """Whether these give what they should, and the same bits for a row wherever it stands; checked once a process."""
    if operators == PLAIN:
        return True
    try:
        return all(_passes(operators, narrow, few) for few in (True, False))
    except Exception:  # an ONNX Runtime without such an operator, or without such a kernel: there are other ways
        return False


def _passes(operators: Operators, narrow: bool, few: bool) -> bool:
    """For products of few rows, which those of a graph with a state are taken for, or of many."""
    generator = torch.Generator().manual_seed(1)
    weight, bias, rows = (torch.randn(*shape, generator=generator) for shape in ((80, 512), (80,), (1, 26, 512)))
    rows[0, 5], rows[0, 9] = 0, -rows[0, 9].abs()  # nothing at all, and nothing behind a Relu
    state = {"state": torch.zeros(1, 1, 16, 1)} if few else {}
    ones, zeros, eps = torch.ones(80), torch.zeros(80), 1e-5

    def record(builder: OnnxBuilder, given: Mapping[str, Value]) -> dict[str, Value]:
        plain = builder.linear(given["x"], weight, bias)
        rectified = builder.linear(builder.node("Relu", given["x"]), weight)
        found = {"y": builder.node("Add", plain, rectified), "z": builder.norm(plain, ones, zeros, eps, rectified)}
        return found | {name: builder.node("Identity", given[name]) for name in state}

    spec = GraphSpec(
        modules=(),
        feeds=lambda x: Feeds({"x": x}, state),
        inputs={"x": (torch.float32, ("rows", "step", 512))},
        state={name: (torch.float32, tuple(value.shape)) for name, value in state.items()},
        outputs=dict.fromkeys("yz", (torch.float32, ("rows", "step", 80))),
        record=record,
        result=lambda found, feeds: found,
    )
    model = OnnxBuilder(int8=True, narrow=narrow, operators=operators).model("check", spec).SerializeToString()
    summed = F.linear(rows, weight, bias) + F.linear(rows.relu(), weight)
    expected = {"y": summed, "z": F.layer_norm(summed, (80,), eps=eps)}
    for threads in (1, 2):
        graph = OnnxGraph(spec, model, threads)
        whole = graph(spec.feeds(rows))
        for name, wanted in expected.items():
            if not (whole[name] - wanted).std() <= (NARROWLY_CLOSE if narrow else CLOSE) * wanted.std():
                return False
        for first, width in ((first, width) for first in (0, 3, 7) for width in (1, 2, 3, 4, 5, 8, 16)):
            part = graph(spec.feeds(rows[:, first : first + width]))
            if not all(torch.equal(part[name], whole[name][:, first : first + width]) for name in expected):
                return False
    return True
