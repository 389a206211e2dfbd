"""One graph in the machine, called on torch's own memory: nothing is copied in or out, caches are written in place.

Knows graphs, not what they are for.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from longstride.contract import Feeds, GraphSpec
from longstride.contract.running import Shape
from longstride.runtime.graph_runner import layer_names
from longstride.runtime.native.library import library
from longstride.runtime.native.plan import ExecutionPlan
from longstride.runtime.native.structures import KIND, CBuffer, CInstruction, CMachine, CValue

BEYOND = 16
"""Numbers behind an output that are the machine's too: it may write whole vectors."""


class MachineError(Exception):
    """The machine could not carry an operator out; says which, and why."""


@cache
def pool(threads: int) -> int | None:
    """The address of the threads that all machines of this process share."""
    found: int | None = library().make_pool(threads) if threads > 1 else None
    return found


class NativeGraph:
    """A program's graph, ready to be called."""

    def __init__(self, spec: GraphSpec, plan: ExecutionPlan, threads: int) -> None:
        self._spec, self.plan, self._threads = spec, plan, threads
        self._machine = Machine(spec, plan, threads)

    def __call__(self, feeds: Feeds) -> dict[str, Tensor]:
        """Outputs by name, in memory of their own; the states have been written."""
        moved = self._machine.lay(feeds)
        outputs = self._machine.lay_outputs(feeds)
        self._machine.run()
        self._machine.check_outputs()
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
        machine = Machine(self._spec, self.plan, self._threads)
        machine.lay(feeds)
        outputs = machine.lay_outputs(feeds)
        return machine.run, outputs

    def clocked(self, feeds: Feeds, times: int) -> list[tuple[str, float]]:
        """Every operator in order, and the microseconds it takes on average."""
        machine = Machine(self._spec, self.plan, self._threads)
        machine.lay(feeds)
        machine.lay_outputs(feeds)
        machine.run()
        spent = machine.clocked(times)
        return [(node.kind, took / times / 1e3) for node, took in zip(self.plan.nodes, spent, strict=True)]


class Machine:
    """A table of values with buffers of its own; what lies where is kept from call to call."""

    def __init__(self, spec: GraphSpec, plan: ExecutionPlan, threads: int) -> None:
        self._spec, self._plan = spec, plan
        self._library = library()
        self.values = plan.values.copy()
        self._buffers = (CBuffer * max(1, plan.buffer_count))()
        self._struct = CMachine(
            values=self.values.ctypes.data_as(ctypes.POINTER(CValue)),
            value_count=len(self.values),
            instructions=ctypes.cast(plan.instructions, ctypes.POINTER(CInstruction)),
            instruction_count=len(plan.nodes),
            buffers=ctypes.cast(self._buffers, ctypes.POINTER(CBuffer)),
            buffer_count=plan.buffer_count,
            pool=pool(threads),
        )
        self._address = ctypes.c_void_p(ctypes.addressof(self._struct))
        self._run = self._library.run
        self._held: dict[str, Tensor] = {}  # what lies here: as long as it is held, its memory is nobody else's
        self._given: dict[str, Tensor] = {}  # the outputs of the last call, likewise
        self._sizes: dict[str, dict[str, int]] = {}  # the dimensions that each of them has, by name
        weakref.finalize(self, _emptied, self._library, self._struct, self._buffers)

    def run(self) -> None:
        """Carry the graph out on what lies here."""
        failed = self._run(self._address)
        if failed:
            node = self._plan.nodes[failed - 1]
            told = (self._struct.error or b"it failed").decode()
            raise MachineError(f"{node.kind}, operator {failed} of {len(self._plan.nodes)}: {told.rstrip('.')}")

    def clocked(self, times: int) -> list[int]:
        """Nanoseconds by operator, of so many runs together."""
        clock = (ctypes.c_int64 * len(self._plan.nodes))()
        self._struct.clock = ctypes.cast(clock, ctypes.POINTER(ctypes.c_int64))
        for _ in range(times):
            self.run()
        self._struct.clock = None
        return list(clock)

    def lay(self, feeds: Feeds) -> list[tuple[Tensor, Tensor]]:
        """Put inputs and states down; gives states whose memory cannot be written to: (there, here)."""
        moved: list[tuple[Tensor, Tensor]] = []
        for name, (dtype, shape) in self._spec.inputs.items():
            tensor = feeds.inputs[name]
            if self._held.get(name) is not tensor:
                self._put(name, tensor.to(dtype).contiguous(), shape)
        for name, (_, shape) in self._spec.state.items():
            tensor = feeds.state[name]
            if not tensor.is_contiguous():
                moved.append((tensor, tensor.contiguous()))
                tensor = moved[-1][1]
            if self._held.get(name) is not tensor:
                self._put(name, tensor, shape)
        return moved

    def lay_outputs(self, feeds: Feeds) -> dict[str, Tensor]:
        """Memory for outputs, after all that goes in."""
        dimensions = {size: length for sizes in self._sizes.values() for size, length in sizes.items()}
        dimensions |= feeds.sizes
        outputs = {}
        for name, (dtype, shape) in self._spec.outputs.items():
            sizes = [dimensions[size] if isinstance(size, str) else size for size in shape]
            count = math.prod(sizes)
            memory = torch.empty(count + BEYOND, dtype=dtype)
            number = self._plan.outputs[name]
            self.values["data"][number] = memory.data_ptr()
            self.values["held"][number] = max(1, count * memory.element_size())
            outputs[name] = memory[:count].view(sizes)
        self._given = outputs
        return outputs

    def check_outputs(self) -> None:
        """Every output is as large as was said."""
        for name, output in self._given.items():
            value = self.values[self._plan.outputs[name]]
            found = tuple(value["sizes"][: value["rank"]].tolist())
            if found != tuple(output.shape) or value["kind"] != KIND[output.dtype]:
                raise MachineError(f"the output {name} is expected as {tuple(output.shape)}, found {found}")

    def _put(self, name: str, tensor: Tensor, shape: Shape) -> None:
        before = self._held.get(name)
        self._held[name] = tensor
        places, parts = layer_names(self._spec, name, shape)
        first = self._plan.given[places[0]]
        here = slice(first, first + len(places))
        sizes = tensor.shape[len(shape) - len(parts) :]
        stride = math.prod(sizes) * tensor.element_size()
        self.values["data"][here] = tensor.data_ptr() + stride * np.arange(len(places))
        if before is not None and before.shape == tensor.shape:
            return
        self.values["kind"][here] = KIND[tensor.dtype]
        self.values["rank"][here] = len(sizes)
        self.values["sizes"][here, : len(sizes)] = tuple(sizes)
        self.values["fixed"][here] = 1
        found = zip(shape, tensor.shape, strict=True)
        self._sizes[name] = {size: length for size, length in found if isinstance(size, str)}


def _emptied(found: ctypes.CDLL, machine: CMachine, buffers: object) -> None:
    """`buffers` are handed on so that they are there for as long as the machine has them."""
    found.empty(ctypes.byref(machine))
