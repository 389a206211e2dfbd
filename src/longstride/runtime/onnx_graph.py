"""One graph in ONNX Runtime, called on torch's own memory: nothing is copied in or out, caches are written in place.

Needs the package onnxruntime. Knows drawings, not what they are for.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import Tensor

from longstride.contract import Drawing, Feeds
from longstride.contract.running import Shape
from longstride.runtime.onnx_names import layer_names

NUMPY = {torch.float32: np.float32, torch.int64: np.int64, torch.bool: np.bool_}
QUIET = 3
"""Only errors are logged: whatever is wrong comes as an exception too."""


def session(model: bytes | str | Path, threads: int) -> onnxruntime.InferenceSession:
    """A session for low latency: one step after another, each on so many threads, which wait for work busily."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = QUIET
    # Threads wait for the next node busily, but not for the next call: several graphs take turns on the same cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    source = model if isinstance(model, bytes) else os.fspath(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


class OnnxGraph:
    """A drawing's graph, ready to be called. Bindings are kept from call to call and renewed where memory moved."""

    def __init__(self, drawing: Drawing, model: bytes | str | Path, threads: int) -> None:
        self._drawing = drawing
        self._session = session(model, threads)
        self._whole = self._session.io_binding()
        # The binding beneath, which takes devices as they are: making one for every call costs as much as binding.
        self._binding = self._whole._iobinding
        self._device = onnxruntime.OrtDevice.make("cpu", 0)._get_c_device()
        self._held: dict[str, Tensor] = {}  # what is bound: as long as it is held, its memory is nobody else's
        self._sizes: dict[str, dict[str, int]] = {}  # the dimensions that each of them has, by name

    def __call__(self, feeds: Feeds) -> dict[str, Tensor]:
        """Outputs by name, in memory of their own; the states have been written."""
        drawing = self._drawing
        dimensions = dict(feeds.sizes)
        moved: list[tuple[Tensor, Tensor]] = []  # states whose memory a graph cannot write: (there, here)
        for name, (dtype, shape) in drawing.inputs.items():
            tensor = feeds.inputs[name]
            if self._held.get(name) is not tensor:
                self._bind(name, tensor.to(dtype).contiguous(), shape, written=False)
            dimensions |= self._sizes[name]
        for name, (_, shape) in drawing.state.items():
            tensor = feeds.state[name]
            if not tensor.is_contiguous():
                moved.append((tensor, tensor.contiguous()))
                tensor = moved[-1][1]
            if self._held.get(name) is not tensor:
                self._bind(name, tensor, shape, written=True)
            dimensions |= self._sizes[name]
        outputs = {}
        for name, (dtype, shape) in drawing.outputs.items():
            sizes = [dimensions[size] if isinstance(size, str) else size for size in shape]
            outputs[name] = output = torch.empty(sizes, dtype=dtype)
            self._binding.bind_output(name, self._device, NUMPY[dtype], sizes, output.data_ptr())
        self._session.run_with_iobinding(self._whole)
        for there, here in moved:
            there.copy_(here)
        return outputs

    def _bind(self, name: str, tensor: Tensor, shape: Shape, written: bool) -> None:
        before = self._held.get(name)
        if before is not None and before.data_ptr() == tensor.data_ptr() and before.shape == tensor.shape:
            return
        self._held[name] = tensor
        found = zip(shape, tensor.shape, strict=True)
        self._sizes[name] = {size: length for size, length in found if isinstance(size, str)}
        names, parts = layer_names(self._drawing, name, shape)
        sizes = list(tensor.shape[len(shape) - len(parts) :])
        stride = math.prod(sizes) * tensor.element_size()
        kind = NUMPY[tensor.dtype]
        for number, place in enumerate(names):
            pointer = tensor.data_ptr() + number * stride
            self._binding.bind_input(place, self._device, kind, sizes, pointer)
            if written:
                self._binding.bind_output(f"new_{place}", self._device, kind, sizes, pointer)
