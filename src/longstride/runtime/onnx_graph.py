"""One graph in ONNX Runtime. Needs the package onnxruntime."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longstride.contract import GraphSpec
from longstride.contract.running import Shape
from longstride.runtime.graphs import Graph, Placement, layer_names
from longstride.runtime.libraries import silently

onnxruntime = silently("onnxruntime")

NUMPY = {torch.float64: np.float64, torch.float32: np.float32, torch.int64: np.int64, torch.bool: np.bool_}
QUIET = 3
"""Only errors are logged: whatever is wrong comes as an exception too."""


def session(model: bytes | str | Path, threads: int) -> Any:
    """A session for low latency: one step after another, each on so many threads, which wait for work busily.

    Beyond the basic level ONNX Runtime fuses nodes where it can infer their shapes, in one graph and not in another:
    the same sum and norm then round otherwise in a step of four tokens than in a step of one.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = QUIET
    # Threads wait for the next node busily, but not for the next call: several graphs take turns on the same cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    source = model if isinstance(model, bytes) else os.fspath(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


class OnnxGraph(Graph):
    """A program's graph in ONNX Runtime."""

    def __init__(self, spec: GraphSpec, model: bytes | str | Path, threads: int) -> None:
        made = session(model, threads)
        super().__init__(spec, lambda: Bindings(spec, made))


class Bindings(Placement):
    """By what ONNX Runtime calls a binding."""

    def __init__(self, spec: GraphSpec, session: Any) -> None:
        super().__init__(spec)
        # What lies beneath a binding and a session, which takes devices as they are and asks nothing before it runs:
        # making a device for every call costs as much as binding.
        self._whole = session.io_binding()
        self._binding = self._whole._iobinding
        self._run = session._sess.run_with_iobinding
        self._device = onnxruntime.OrtDevice.make("cpu", 0)._get_c_device()
        # Small states, and where a run leaves the new ones: it may read the old one after that.
        self._renewed: dict[str, tuple[Any, Any]] = {}

    def run(self) -> None:
        """Carry the graph out on what lies here."""
        self._run(self._binding, None)
        for there, here in self._renewed.values():
            there[...] = here

    def room(self, name: str, dtype: torch.dtype, sizes: list[int]) -> Tensor:
        """Bound to where it lies."""
        output = torch.empty(sizes, dtype=dtype)
        self._binding.bind_output(name, self._device, NUMPY[dtype], sizes, output.data_ptr())
        return output

    def put(self, name: str, tensor: Tensor, shape: Shape, written: bool, resized: bool) -> None:
        """Layer by layer, and where the new state goes."""
        names, parts = layer_names(self._spec, name, shape)
        sizes = list(tensor.shape[len(shape) - len(parts) :])
        stride = math.prod(sizes) * tensor.element_size()
        kind = NUMPY[tensor.dtype]
        for number, place in enumerate(names):
            pointer = tensor.data_ptr() + number * stride
            self._binding.bind_input(place, self._device, kind, sizes, pointer)
            if written and name not in self._spec.layered:
                there = tensor.numpy()
                self._renewed[name] = there, np.empty_like(there)
                pointer = self._renewed[name][1].ctypes.data
            if written:
                self._binding.bind_output(f"new_{place}", self._device, kind, sizes, pointer)
