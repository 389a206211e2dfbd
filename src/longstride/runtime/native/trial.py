"""A trial of what was compiled: it is used only where it gives what it should, rows the same in any company."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch
from torch import nn
from torch.nn import functional as F

from longstride.contract import Drawing, Feeds
from longstride.ops.graph_builder import GraphBuilder, Handle
from longstride.runtime.native.graph import MachineError, NativeGraph
from longstride.runtime.native.pen import NativeBuilder
from longstride.runtime.native.tape import Tape

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

    def draw(pen: GraphBuilder, given: Mapping[str, Handle]) -> dict[str, Handle]:
        plain = pen.linear(given["x"], weight, bias)
        rectified = pen.linear(pen.node("Relu", given["x"]), weight)
        return {
            "y": pen.node("Add", plain, rectified),
            "z": pen.norm(plain, norm.weight, norm.bias, norm.eps, rectified),
        }

    outputs = (torch.float32, ("rows", "step", OUTPUTS))
    drawing = Drawing(
        modules=(),
        feeds=lambda x: Feeds({"x": x}),
        inputs={"x": (torch.float32, ("rows", "step", INPUTS))},
        state={},
        outputs={"y": outputs, "z": outputs},
        draw=draw,
        result=lambda found, feeds: found,
    )
    tape = Tape(NativeBuilder(int8).recording(drawing))
    expected = F.linear(rows, weight, bias) + F.linear(rows.relu(), weight)
    for threads in (1, 2):
        graph = NativeGraph(drawing, tape, threads)
        whole = graph(drawing.feeds(rows))
        for found, wanted in ((whole["y"], expected), (whole["z"], norm(expected))):
            if not (found - wanted).std() <= CLOSE[int8] * wanted.std():
                return False
        for width in (1, 2, 5, 12):
            for first in (0, 7):
                part = graph(drawing.feeds(rows[:, first : first + width]))
                if not all(torch.equal(part[name], whole[name][:, first : first + width]) for name in ("y", "z")):
                    return False
    return True
