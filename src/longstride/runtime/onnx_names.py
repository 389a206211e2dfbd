"""How a graph's inputs and states are called in its ONNX graph."""

from __future__ import annotations

from longstride.contract import GraphSpec
from longstride.contract.running import Shape


def layer_names(spec: GraphSpec, name: str, shape: Shape) -> tuple[list[str], Shape]:
    """The names an input or state goes by, ``keys.0``, ``keys.1``, ... if it is layered, and the shape of each."""
    if name not in spec.layered:
        return [name], shape
    layers = shape[0]
    assert isinstance(layers, int)
    return [f"{name}.{number}" for number in range(layers)], shape[1:]
