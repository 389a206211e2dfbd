"""Small graphs for tests, and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from longstride.contract import Feeds, GraphSpec
from longstride.runtime.native.builder import NativeBuilder
from longstride.runtime.native.graph import NativeGraph
from longstride.runtime.native.plan import ExecutionPlan

Record = Callable[[Any, Mapping[str, Any]], Mapping[str, Any]]


def spec_of(record: Record, given: Mapping[str, Tensor], outputs: Mapping[str, Tensor], *states: str) -> GraphSpec:
    """Of tensors like these; those named as states are written."""
    shapes = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in given.items()}
    return GraphSpec(
        modules=(),
        feeds=lambda given: Feeds(
            {name: tensor for name, tensor in given.items() if name not in states},
            {name: given[name] for name in states},
        ),
        inputs={name: shape for name, shape in shapes.items() if name not in states},
        state={name: shapes[name] for name in states},
        outputs={name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in outputs.items()},
        record=record,
        result=lambda found, feeds: found,
    )


def graph_of(spec: GraphSpec, int8: bool = False, threads: int = 1) -> NativeGraph:
    return NativeGraph(spec, ExecutionPlan(NativeBuilder(int8).recording(spec)), threads)


def kinds_of(spec: GraphSpec) -> list[str]:
    """The operators that are left of it, in order."""
    return [node.kind for node in NativeBuilder(int8=False).recording(spec).nodes]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
