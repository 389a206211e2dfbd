"""Programs' graphs as files. Needs the package onnx, not onnxruntime."""

from __future__ import annotations

from pathlib import Path

import onnx

from longstride.contract import Program, WorkError
from longstride.runtime.onnx_builder import OnnxBuilder

LARGEST = 2**31 - 1
"""Bytes that a protobuf message may have; weights of larger graphs lie in a file of their own."""


def write_graph(program: Program, path: Path, int8: bool) -> None:
    """Write the graph of a program that has a spec, for steps of two tokens or more."""
    if program.graph is None:
        raise WorkError(f"The program {program.name!r} has no spec that a graph could be made of.")
    model = OnnxBuilder(int8).model(program.name, program.graph)
    external = model.ByteSize() >= LARGEST
    onnx.save_model(
        model, str(path), save_as_external_data=external, location=f"{path.name}.data" if external else None
    )
