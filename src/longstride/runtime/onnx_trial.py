"""A trial of the operators that integer products and norms are made by on a processor of this kind (onnx_means).

They are used only where they give what they should, and a row's numbers are the same in any company. Needs
the packages onnxruntime and onnx.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch
from torch import nn
from torch.nn import functional as F

from longstride.contract import Feeds, GraphSpec
from longstride.ops.graph_builder import Handle as Value
from longstride.runtime.onnx_builder import OnnxBuilder
from longstride.runtime.onnx_graph import OnnxGraph
from longstride.runtime.onnx_means import PLAIN, Means

INPUTS, OUTPUTS = 512, 80
WIDEST = 26
CLOSE = 0.02
"""Of the results' own spread: eight bits are far better than that, a kernel that overflows far worse."""
NARROWLY_CLOSE = 0.04
"""Where weights have seven."""


@cache
def rows_are_independent(means: Means, narrow: bool = False) -> bool:
    """Whether these give what they should, the same bits for a row wherever it stands; tried once."""
    if means == PLAIN:
        return True
    try:
        return all(_holds(means, narrow, few) for few in (True, False))
    except Exception:  # an ONNX Runtime without such an operator, or without such a kernel: there are other ways
        return False


def _holds(means: Means, narrow: bool, few: bool) -> bool:
    """For products of few rows, which those of a graph with a state are taken for, or of many."""
    generator = torch.Generator().manual_seed(1)
    weight, bias = torch.randn(OUTPUTS, INPUTS, generator=generator), torch.randn(OUTPUTS, generator=generator)
    rows = torch.randn(1, WIDEST, INPUTS, generator=generator)
    rows[0, 5], rows[0, 9] = 0, -rows[0, 9].abs()  # nothing at all, and nothing behind a Relu
    state = {"state": torch.zeros(1, 1, 16, 1)} if few else {}
    norm = nn.LayerNorm(OUTPUTS).requires_grad_(False)

    def record(builder: OnnxBuilder, given: Mapping[str, Value]) -> dict[str, Value]:
        plain = builder.linear(given["x"], weight, bias)
        rectified = builder.linear(builder.node("Relu", given["x"]), weight)
        kept = {name: builder.node("Identity", given[name]) for name in state}
        return {
            "y": builder.node("Add", plain, rectified),
            "z": builder.norm(plain, norm.weight, norm.bias, norm.eps, rectified),
            **kept,
        }

    outputs = (torch.float32, ("rows", "step", OUTPUTS))
    spec = GraphSpec(
        modules=(),
        feeds=lambda x: Feeds({"x": x}, state),
        inputs={"x": (torch.float32, ("rows", "step", INPUTS))},
        state={name: (torch.float32, tuple(value.shape)) for name, value in state.items()},
        outputs={"y": outputs, "z": outputs},
        record=record,
        result=lambda found, feeds: found,
    )
    model = OnnxBuilder(int8=True, narrow=narrow, means=means).model("trial", spec).SerializeToString()
    expected = F.linear(rows, weight, bias) + F.linear(rows.relu(), weight)
    for threads in (1, 2):
        graph = OnnxGraph(spec, model, threads)
        whole = graph(spec.feeds(rows))
        close = NARROWLY_CLOSE if narrow else CLOSE
        for found, wanted in ((whole["y"], expected), (whole["z"], norm(expected))):
            if not (found - wanted).std() <= close * wanted.std():
                return False
        for width in (1, 2, 3, 4, 5, 8, 16):
            for first in (0, 3, 7):
                part = graph(spec.feeds(rows[:, first : first + width]))
                if not all(torch.equal(part[name], whole[name][:, first : first + width]) for name in ("y", "z")):
                    return False
    return True
