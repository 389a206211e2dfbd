"""One graph in the machine that is written in C."""

from __future__ import annotations

import ctypes
import math
import weakref
from functools import cache

import numpy as np
import torch
from torch import Tensor

from longstride.contract import Feeds, GraphSpec
from longstride.contract.running import Shape
from longstride.runtime.graphs import Graph, HalfDoneError, Placement, layer_names
from longstride.runtime.native.library import KIND, CBuffer, CInstruction, CMachine, CValue, library
from longstride.runtime.native.plan import ExecutionPlan

BEYOND = 16
"""Numbers behind an output that are the machine's too: it may write whole vectors."""

WRITES_STATES = frozenset({"Accumulate", "Append", "Assign", "Move", "Write"})


class MachineError(Exception):
    """The machine could not carry an operator out; says which, and why."""


@cache
def pool(threads: int) -> int | None:
    """The address of the threads that all machines of this process share."""
    found: int | None = library().make_pool(threads) if threads > 1 else None
    return found


class NativeGraph(Graph):
    """A program's graph in the machine."""

    def __init__(self, spec: GraphSpec, plan: ExecutionPlan, threads: int) -> None:
        self.plan = plan
        super().__init__(spec, lambda: Machine(spec, plan, threads))

    def clocked(self, feeds: Feeds, times: int) -> list[tuple[str, float]]:
        """Every operator in order, and the microseconds it takes on average."""
        machine = self._new()
        assert isinstance(machine, Machine)
        machine.lay(feeds)
        machine.lay_outputs(feeds)
        machine.run()
        spent = machine.clocked(times)
        return [(node.kind, took / times / 1e3) for node, took in zip(self.plan.nodes, spent, strict=True)]


class Machine(Placement):
    """A table of values with buffers of its own."""

    def __init__(self, spec: GraphSpec, plan: ExecutionPlan, threads: int) -> None:
        super().__init__(spec)
        self._plan = plan
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
        # Not when the process ends, while a thread may still be in the midst of a run.
        weakref.finalize(self, _emptied, self._library, self._struct, self._buffers).atexit = False

    def run(self) -> None:
        """Carry the graph out on what lies here."""
        failed = self._run(self._address)
        if failed:
            node = self._plan.nodes[failed - 1]
            told = (self._struct.error or b"it failed").decode()
            said = f"{node.kind}, operator {failed} of {len(self._plan.nodes)}: {told.rstrip('.')}"
            raise self._error(said, failed)

    def _error(self, said: str, operators: int) -> Exception:
        """What went wrong when so many operators had begun."""
        if any(node.kind in WRITES_STATES for node in self._plan.nodes[:operators]):
            return HalfDoneError(
                f"The runtime native stopped in the midst of a step, which cannot be taken again: {said}."
            )
        return MachineError(said)

    def clocked(self, times: int) -> list[int]:
        """Nanoseconds by operator, of so many runs together."""
        clock = (ctypes.c_int64 * len(self._plan.nodes))()
        self._struct.clock = ctypes.cast(clock, ctypes.POINTER(ctypes.c_int64))
        for _ in range(times):
            self.run()
        self._struct.clock = None
        return list(clock)

    def room(self, name: str, dtype: torch.dtype, sizes: list[int]) -> Tensor:
        """With some numbers more behind it."""
        count = math.prod(sizes)
        memory = torch.empty(count + BEYOND, dtype=dtype)
        number = self._plan.outputs[name]
        self.values["data"][number] = memory.data_ptr()
        self.values["held"][number] = max(1, count * memory.element_size())
        return memory[:count].view(sizes)

    def check_outputs(self) -> None:
        """Every output is as large as was said."""
        for name, output in self._given.items():
            value = self.values[self._plan.outputs[name]]
            found = tuple(value["sizes"][: value["rank"]].tolist())
            if found != tuple(output.shape) or value["kind"] != KIND[output.dtype]:
                said = f"the output {name} is expected as {tuple(output.shape)}, found {found}"
                raise self._error(said, len(self._plan.nodes))

    def put(self, name: str, tensor: Tensor, shape: Shape, written: bool, resized: bool) -> None:
        """By its address, layer by layer."""
        places, parts = layer_names(self._spec, name, shape)
        first = self._plan.given[places[0]]
        here = slice(first, first + len(places))
        sizes = tensor.shape[len(shape) - len(parts) :]
        stride = math.prod(sizes) * tensor.element_size()
        self.values["data"][here] = tensor.data_ptr() + stride * np.arange(len(places))
        if not resized:
            return
        self.values["kind"][here] = KIND[tensor.dtype]
        self.values["rank"][here] = len(sizes)
        self.values["sizes"][here, : len(sizes)] = tuple(sizes)
        self.values["fixed"][here] = 1


def _emptied(found: ctypes.CDLL, machine: CMachine, buffers: object) -> None:
    """`buffers` are handed on so that they are there for as long as the machine has them."""
    found.empty(ctypes.byref(machine))
