"""A trial of what was compiled: it is used only where it gives what it should, rows the same in any company."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch
from torch import nn
from torch.nn import functional as F

from longstride.contract import Feeds, GraphSpec
from longstride.ops.graph_builder import GraphBuilder, Handle
from longstride.runtime.native.builder import NativeBuilder
from longstride.runtime.native.graph import MachineError, NativeGraph
from longstride.runtime.native.plan import ExecutionPlan

INPUTS, OUTPUTS = 192, 80
WIDEST = 26
CLOSE = {True: 0.02, False: 1e-4}
"""By whether in integers, of the results' own spread: eight bits are far better than that."""


@cache
def what_is_wrong(int8: bool) -> str | None:
    """None, or why the machine may not be trusted here, in words that end a sentence; tried once."""
    try:
        holds = _holds(int8)
    except MachineError as error:
        return f"a trial of what was compiled failed ({error})"
    return None if holds else "a trial of what was compiled gave other numbers than it should"


def _holds(int8: bool) -> bool:
    generator = torch.Generator().manual_seed(1)
    weight, bias = torch.randn(OUTPUTS, INPUTS, generator=generator), torch.randn(OUTPUTS, generator=generator)
    rows = torch.randn(1, WIDEST, INPUTS, generator=generator)
    rows[0, 5], rows[0, 9] = 0, -rows[0, 9].abs()  # nothing at all, and nothing behind a Relu
    norm = nn.LayerNorm(OUTPUTS).requires_grad_(False)

    def record(builder: GraphBuilder, given: Mapping[str, Handle]) -> dict[str, Handle]:
        plain = builder.linear(given["x"], weight, bias)
        rectified = builder.linear(builder.node("Relu", given["x"]), weight)
        return {
            "y": builder.node("Add", plain, rectified),
            "z": builder.norm(plain, norm.weight, norm.bias, norm.eps, rectified),
        }

    outputs = (torch.float32, ("rows", "step", OUTPUTS))
    spec = GraphSpec(
        modules=(),
        feeds=lambda x: Feeds({"x": x}),
        inputs={"x": (torch.float32, ("rows", "step", INPUTS))},
        state={},
        outputs={"y": outputs, "z": outputs},
        record=record,
        result=lambda found, feeds: found,
    )
    plan = ExecutionPlan(NativeBuilder(int8).recording(spec))
    expected = F.linear(rows, weight, bias) + F.linear(rows.relu(), weight)
    for threads in (1, 2):
        graph = NativeGraph(spec, plan, threads)
        whole = graph(spec.feeds(rows))
        for found, wanted in ((whole["y"], expected), (whole["z"], norm(expected))):
            if not (found - wanted).std() <= CLOSE[int8] * wanted.std():
                return False
        for width in (1, 2, 5, 12):
            for first in (0, 7):
                part = graph(spec.feeds(rows[:, first : first + width]))
                if not all(torch.equal(part[name], whole[name][:, first : first + width]) for name in ("y", "z")):
                    return False
    return True
