"""What a native builder records: values, and the operators that make them. Knows no spec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(eq=False)
class GraphValue:
    """A value: what an operator gives, what a call is fed, or a constant."""

    maker: Node | None = None
    constant: Tensor | None = None


@dataclass(eq=False)
class Node:
    """One operator."""

    kind: str
    inputs: list[GraphValue | None]
    """None: left out"""
    attributes: list[int] = field(default_factory=list)
    weights: Any = None
    """what was prepared for it and has an address (longstride.runtime.native.weights)"""
    outputs: list[GraphValue] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.outputs:
            self.outputs = [GraphValue(self)]


@dataclass(frozen=True)
class Recording:
    """A whole graph."""

    nodes: list[Node]
    """in order, those alone that somebody reads"""
    given: dict[str, GraphValue]
    """inputs and states by the names they have in graphs (``keys.0``)"""
    outputs: dict[str, GraphValue]
    states: dict[str, GraphValue]
    """the new value of each, by the same name"""


TO_THE_LAST = 2**63 - 1

ATTRIBUTES: dict[str, dict[str, int | None]] = {
    "ArgMax": {"axis": 0, "keepdims": 1},
    "Cast": {"to": None},
    "Concat": {"axis": None},
    "Gather": {"axis": 0},
    "GatherElements": {"axis": 0},
    "GatherND": {"batch_dims": 0},
    "LogSoftmax": {"axis": -1},
    "ReduceMax": {"keepdims": 1},
    "ReduceSum": {"keepdims": 1},
    "Shape": {"start": 0, "end": TO_THE_LAST},
    "Softmax": {"axis": -1},
    "Split": {"axis": 0, "num_outputs": 0},
    "TopK": {"axis": -1},
}
"""Of ONNX operators, in the order in which the machine expects them, with what stands for one that is not said."""


def attributes_of(kind: str, said: dict[str, Any]) -> list[int]:
    """Those of one operator as numbers in order."""
    if kind == "Transpose":
        return [int(axis) for axis in said["perm"]]
    known = ATTRIBUTES.get(kind, {})
    if unknown := said.keys() - known.keys():
        raise ValueError(f"{kind} expects no attribute {', '.join(sorted(unknown))} here")
    found = {**known, **said}
    if missing := [name for name, value in found.items() if value is None]:
        raise ValueError(f"{kind} expects the attribute {', '.join(missing)}, found none")
    return [int(value) for value in found.values() if value is not None]


def _joined(tensors: list[Tensor], attributes: list[int]) -> Tensor:
    return torch.cat(tensors, dim=attributes[0])


FOLDED: dict[str, Callable[[list[Tensor], list[int]], Tensor]] = {
    "Add": lambda given, _: given[0] + given[1],
    "Concat": _joined,
    "Mul": lambda given, _: given[0] * given[1],
    "Range": lambda given, _: torch.arange(int(given[0]), int(given[1]), int(given[2])),
    "Squeeze": lambda given, _: given[0].squeeze(tuple(given[1].tolist())),
    "Sub": lambda given, _: given[0] - given[1],
}
"""What is carried out once, when it is recorded, where all that it reads are small constants."""

SMALL = 4096
"""Numbers of a constant that is folded, at most."""


def folded(node: Node) -> Tensor | None:
    """The result of an operator that reads nothing but small constants of integers."""
    if node.kind not in FOLDED or len(node.outputs) != 1:
        return None
    given = [None if made is None else made.constant for made in node.inputs]
    if not all(tensor is not None and tensor.dtype == torch.int64 and tensor.numel() <= SMALL for tensor in given):
        return None
    return FOLDED[node.kind]([tensor for tensor in given if tensor is not None], node.attributes)
