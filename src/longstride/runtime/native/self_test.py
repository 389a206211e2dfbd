"""One quick check of the library before it is used: products give what they should, a row the same in any company."""

from __future__ import annotations

from functools import cache

import torch
from torch.nn import functional as F

from longstride.contract import Feeds, GraphSpec
from longstride.runtime.native.builder import NativeBuilder
from longstride.runtime.native.graph import MachineError, NativeGraph
from longstride.runtime.native.plan import ExecutionPlan

ROWS, INPUTS, OUTPUTS = 26, 192, 80
"""More rows than any kernel takes at a time, inputs that it takes whole, outputs that it does not."""
CLOSE = {True: 0.02, False: 1e-4}
"""The greatest deviation, by whether in integers, of the results' own: eight bits are far better than that."""


@cache
def self_test(int8: bool) -> str | None:
    """What is wrong with the library here, in words that end a sentence, or None; tried once."""
    try:
        return None if _holds(int8) else "it gives other numbers than it should"
    except MachineError as error:
        return str(error)


def _holds(int8: bool) -> bool:
    generator = torch.Generator().manual_seed(1)
    weight, bias = torch.randn(OUTPUTS, INPUTS, generator=generator), torch.randn(OUTPUTS, generator=generator)
    rows = torch.randn(1, ROWS, INPUTS, generator=generator)
    spec = GraphSpec(
        modules=(),
        feeds=lambda x: Feeds({"x": x}),
        inputs={"x": (torch.float32, ("rows", "step", INPUTS))},
        state={},
        outputs={"y": (torch.float32, ("rows", "step", OUTPUTS))},
        record=lambda builder, given: {"y": builder.linear(given["x"], weight, bias)},
        result=lambda found, feeds: found,
    )
    graph = NativeGraph(spec, ExecutionPlan(NativeBuilder(int8).recording(spec)), threads=1)
    whole, expected = graph(spec.feeds(rows))["y"], F.linear(rows, weight, bias)
    alone = graph(spec.feeds(rows[:, 7:8]))["y"]
    close = (whole - expected).std() <= CLOSE[int8] * expected.std()
    return bool(close) and torch.equal(alone, whole[:, 7:8])
