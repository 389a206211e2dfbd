"""A trial of integer products whose rows are quantized by one operator with a scale for each, signed or behind a Relu.

They are used only where they give what they should on this machine, and a row's numbers are the same in any company.

Needs the packages onnxruntime and onnx.
"""

from __future__ import annotations

from functools import cache

import torch
from torch.nn import functional as F

from longstride.contract import Drawing, Feeds
from longstride.nn.pen import Value
from longstride.runtime.onnx_graph import OnnxGraph
from longstride.runtime.onnx_pen import OnnxPen

INPUTS, OUTPUTS = 512, 80
WIDEST = 26
CLOSE = 0.02
"""Of the results' own spread: eight bits are far better than that, a kernel that overflows far worse."""


@cache
def rows_are_independent() -> bool:
    """Whether such products give what they should, the same bits for a row wherever it stands; tried once."""
    try:
        return _tried()
    except Exception:  # an ONNX Runtime without such an operator, or without such a kernel: there are other ways
        return False


def _tried() -> bool:
    generator = torch.Generator().manual_seed(1)
    weight, bias = torch.randn(OUTPUTS, INPUTS, generator=generator), torch.randn(OUTPUTS, generator=generator)
    rows = torch.randn(1, WIDEST, INPUTS, generator=generator)
    rows[0, 5], rows[0, 9] = 0, -rows[0, 9].abs()  # nothing at all, and nothing behind a Relu
    state = torch.zeros(1, 1, 16, 1)

    def rectified(pen: OnnxPen, x: Value) -> Value:
        return pen.linear(pen.node("Relu", x), weight)

    drawing = Drawing(
        modules=(),
        feeds=lambda x: Feeds({"x": x}, {"state": state}),
        inputs={"x": (torch.float32, ("rows", "step", INPUTS))},
        state={"state": (torch.float32, (1, 1, 16, 1))},
        outputs={"y": (torch.float32, ("rows", "step", OUTPUTS))},
        draw=lambda pen, given: {
            "y": pen.node("Add", pen.linear(given["x"], weight, bias), rectified(pen, given["x"])),
            "state": pen.node("Identity", given["state"]),
        },
        result=lambda found, feeds: found["y"],
    )
    model = OnnxPen(int8=True, by_row=True).model("trial", drawing).SerializeToString()
    for threads in (1, 2):
        graph = OnnxGraph(drawing, model, threads)
        whole = graph(drawing.feeds(rows))["y"]
        expected = F.linear(rows, weight, bias) + F.linear(rows.relu(), weight)
        if not (whole - expected).std() <= CLOSE * expected.std():
            return False
        for width in (1, 2, 3, 4, 5, 8, 16):
            for first in (0, 3, 7):
                part = graph(drawing.feeds(rows[:, first : first + width]))["y"]
                if not torch.equal(part, whole[:, first : first + width]):
                    return False
    return True
