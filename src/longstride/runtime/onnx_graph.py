"""One graph in ONNX Runtime, called on torch's own memory: nothing is copied in or out, caches are written in place.

Needs the package onnxruntime. Knows graphs, not what they are for.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longstride.contract import Feeds, GraphSpec
from longstride.contract.running import Shape
from longstride.runtime.graph_runner import layer_names
from longstride.runtime.libraries import silently

onnxruntime = silently("onnxruntime")

NUMPY = {torch.float64: np.float64, torch.float32: np.float32, torch.int64: np.int64, torch.bool: np.bool_}
QUIET = 3
"""Only errors are logged: whatever is wrong comes as an exception too."""


def session(model: bytes | str | Path, threads: int) -> Any:
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
    """A program's graph, ready to be called."""

    def __init__(self, spec: GraphSpec, model: bytes | str | Path, threads: int) -> None:
        self._spec = spec
        self._session = session(model, threads)
        self._bindings = Bindings(spec, self._session)

    def __call__(self, feeds: Feeds) -> dict[str, Tensor]:
        """Outputs by name, in memory of their own; the states have been written."""
        moved = self._bindings.bind(feeds)
        outputs = self._bindings.bind_outputs(feeds)
        self._bindings.run()
        for there, here in moved:
            there.copy_(here)
        return outputs

    def bound(self, feeds: Feeds) -> tuple[Callable[[], None], dict[str, Tensor]] | None:
        """What runs the graph on these tensors again and again, and the outputs by name, which it writes each time.

        None where some tensor cannot be used where it lies.
        """
        given = [(feeds.inputs[name], dtype) for name, (dtype, _) in self._spec.inputs.items()]
        given += [(feeds.state[name], dtype) for name, (dtype, _) in self._spec.state.items()]
        if not all(tensor.dtype == dtype and tensor.is_contiguous() for tensor, dtype in given):
            return None
        bindings = Bindings(self._spec, self._session)
        bindings.bind(feeds)
        outputs = bindings.bind_outputs(feeds)
        return bindings.run, outputs


class Bindings:
    """Where a graph finds tensors. Bindings are kept from call to call and renewed where memory moved."""

    def __init__(self, spec: GraphSpec, session: Any) -> None:
        self._spec = spec
        # What lies beneath a binding and a session, which takes devices as they are and asks nothing before it runs:
        # making a device for every call costs as much as binding.
        self._whole = session.io_binding()
        self._binding = self._whole._iobinding
        self._run = session._sess.run_with_iobinding
        self._device = onnxruntime.OrtDevice.make("cpu", 0)._get_c_device()
        self._held: dict[str, Tensor] = {}  # what is bound: as long as it is held, its memory is nobody else's
        self._given: dict[str, Tensor] = {}  # the outputs of the last call, likewise
        # Small states, and where a run leaves the new ones: it may read the old one after that.
        self._renewed: dict[str, tuple[Any, Any]] = {}
        self._sizes: dict[str, dict[str, int]] = {}  # the dimensions that each of them has, by name
        self._dimensions: dict[str, int] | None = None  # and all of these together; None where they have to be found
        self._inputs, self._states, self._outputs = (
            [(name, dtype, shape) for name, (dtype, shape) in values.items()]
            for values in (spec.inputs, spec.state, spec.outputs)
        )

    def run(self) -> None:
        """Carry the graph out on what lies here."""
        self._run(self._binding, None)
        for there, here in self._renewed.values():
            there[...] = here

    def bind(self, feeds: Feeds) -> list[tuple[Tensor, Tensor]]:
        """Bind inputs and states; gives states whose memory a graph cannot write: (there, here)."""
        moved: list[tuple[Tensor, Tensor]] = []
        held = self._held
        for name, dtype, shape in self._inputs:
            tensor = feeds.inputs[name]
            if held.get(name) is not tensor:
                self._bind(name, tensor.to(dtype).contiguous(), shape, written=False)
        for name, _, shape in self._states:
            tensor = feeds.state[name]
            if not tensor.is_contiguous():
                moved.append((tensor, tensor.contiguous()))
                tensor = moved[-1][1]
            if held.get(name) is not tensor:
                self._bind(name, tensor, shape, written=True)
        return moved

    def bind_outputs(self, feeds: Feeds) -> dict[str, Tensor]:
        """Bind outputs to memory of their own, after all that goes in."""
        if self._dimensions is None:  # otherwise all that is bound has the sizes it had
            self._dimensions = {size: length for sizes in self._sizes.values() for size, length in sizes.items()}
        dimensions = {**self._dimensions, **feeds.sizes} if feeds.sizes else self._dimensions
        outputs = {}
        for name, dtype, shape in self._outputs:
            sizes = [dimensions[size] if isinstance(size, str) else size for size in shape]
            outputs[name] = output = torch.empty(sizes, dtype=dtype)
            self._binding.bind_output(name, self._device, NUMPY[dtype], sizes, output.data_ptr())
        self._given = outputs
        return outputs

    def _bind(self, name: str, tensor: Tensor, shape: Shape, written: bool) -> None:
        before = self._held.get(name)
        if before is not None and before.data_ptr() == tensor.data_ptr() and before.shape == tensor.shape:
            return
        self._held[name] = tensor
        if before is not None and before.shape == tensor.shape:
            self._bind_parts(name, tensor, shape, written)
            return
        self._dimensions = None
        found = zip(shape, tensor.shape, strict=True)
        self._sizes[name] = {size: length for size, length in found if isinstance(size, str)}
        self._bind_parts(name, tensor, shape, written)

    def _bind_parts(self, name: str, tensor: Tensor, shape: Shape, written: bool) -> None:
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
