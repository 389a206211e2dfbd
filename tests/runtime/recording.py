"""A recorder that works everywhere: it notes every operation of a run with the tensors it read and wrote, and does them
again, in the same memory, without running a line of the function. What a CUDA graph cannot do, it refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from longstride.runtime.cuda_graph_recorder import Recorded

LOOKS_AT_VALUES = {
    "aten::_local_scalar_dense",
    "aten::item",
    "aten::is_nonzero",
    "aten::nonzero",
    "aten::nonzero_numpy",
    "aten::masked_select",
    "aten::unique_dim",
    "aten::_unique2",
    "aten::unique_consecutive",
    "aten::equal",
    "aten::lift_fresh",  # a tensor made of numbers on the host
}


class RefusedError(RuntimeError):
    """Something that cannot be recorded."""


def tensors_of(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, list | tuple):
        return [tensor for one in tree for tensor in tensors_of(one)]
    if isinstance(tree, dict):
        return [tensor for one in tree.values() for tensor in tensors_of(one)]
    if hasattr(tree, "__dataclass_fields__"):
        return [tensor for name in tree.__dataclass_fields__ for tensor in tensors_of(getattr(tree, name))]
    return []


@cache
def written(func: Any) -> tuple[int, ...]:
    """The places of the arguments that an operation writes: its schema is slow to read."""
    said = enumerate(func._schema.arguments)
    return tuple(place for place, one in said if one.alias_info is not None and one.alias_info.is_write)


def place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class ExecutionPlan(TorchDispatchMode):
    """Notes operations; `mine` are the places that may be written although somebody else made them."""

    def __init__(self, mine: set[int]) -> None:
        super().__init__()
        self._mine = mine
        self.made: dict[int, Tensor] = {}  # held, so that no place is given out twice
        self.steps: list[Callable[[], None]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.name().partition(".")[0]
        given = tensors_of((args, kwargs))
        if name in LOOKS_AT_VALUES:
            raise RefusedError(f"{name} looks at a value on the host.")
        if name == "aten::index" and any(one.dtype == torch.bool for one in tensors_of(args[1])):
            raise RefusedError("an index of booleans makes a shape that depends on values.")
        if name == "aten::repeat_interleave" and "Tensor" in func._overloadname:
            raise RefusedError("repetitions by a tensor make a shape that depends on values.")
        changed = [args[one] for one in written(func) if one < len(args) and isinstance(args[one], Tensor)]
        for tensor in changed:
            if place(tensor) not in self._mine and place(tensor) not in self.made:
                raise RefusedError(f"{name} writes a tensor that is not in the state.")
        found = func(*args, **kwargs)
        inputs = {place(tensor) for tensor in given}
        every = tensors_of(found)
        fresh = [(number, tensor) for number, tensor in enumerate(every) if place(tensor) not in inputs]
        for _, tensor in fresh:
            self.made[place(tensor)] = tensor
        if fresh or changed:

            def again() -> None:
                renewed = tensors_of(func(*args, **kwargs))
                assert len(renewed) == len(every)
                for number, before in fresh:
                    before.copy_(renewed[number])

            self.steps.append(again)
        return found


class TapeRecorder:
    """What :class:`longstride.runtime.cuda_graph.CudaRecorder` is, without CUDA."""

    def __init__(self) -> None:
        self.recorded = 0
        self.replayed = 0

    def warm_up(self, function: Callable[[], Any]) -> None:
        function()

    def record(self, function: Callable[[], Any], state: list[Tensor]) -> Recorded:
        tape = ExecutionPlan({place(tensor) for tensor in state})
        # A recording does not run: whatever this pass wrote is put back.
        kept = [tensor.clone() for tensor in state]
        with tape:
            result = function()
        for tensor, before in zip(state, kept, strict=True):
            tensor.copy_(before)
        self.recorded += 1

        def replay() -> None:
            self.replayed += 1
            with torch.inference_mode():  # a graph does not ask which mode it is launched in
                for step in tape.steps:
                    step()

        replay.steps = tape.steps  # type: ignore[attr-defined]  # for who repeats it in parts
        return Recorded(replay, result, sum(tensor.nbytes for tensor in tape.made.values()))

    def wait(self) -> None:
        """Nothing runs ahead here."""
