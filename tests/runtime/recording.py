"""A recorder that works everywhere: it notes every operation of a run with the tensors it read and wrote, and does them
again, in the same memory, without running a line of the function. What a CUDA graph cannot do, it refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

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
    found = []
    for leaf in tree_flatten(tree)[0]:
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif hasattr(leaf, "__dataclass_fields__"):
            found += tensors_of([getattr(leaf, name) for name in leaf.__dataclass_fields__])
    return found


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
        name = func._schema.name
        given = tensors_of((args, kwargs))
        if name in LOOKS_AT_VALUES:
            raise RefusedError(f"{name} looks at a value on the host.")
        if name == "aten::index" and any(
            isinstance(one, Tensor) and one.dtype == torch.bool for one in tree_flatten(args[1])[0]
        ):
            raise RefusedError("an index of booleans makes a shape that depends on values.")
        if name == "aten::repeat_interleave" and "Tensor" in func._overloadname:
            raise RefusedError("repetitions by a tensor make a shape that depends on values.")
        changed = [
            argument
            for argument, said in zip(args, func._schema.arguments, strict=False)
            if said.alias_info is not None and said.alias_info.is_write and isinstance(argument, Tensor)
        ]
        for tensor in changed:
            if place(tensor) not in self._mine and place(tensor) not in self.made:
                raise RefusedError(f"{name} writes a tensor that is not in the state.")
        found = func(*args, **kwargs)
        inputs = {place(tensor) for tensor in given}
        fresh = [tensor for tensor in tensors_of(found) if place(tensor) not in inputs]
        for tensor in fresh:
            self.made[place(tensor)] = tensor
        if fresh or changed:

            def again() -> None:
                renewed = func(*args, **kwargs)
                old, new = tensors_of(found), tensors_of(renewed)
                for before, after in zip(old, new, strict=True):
                    if place(before) not in inputs:
                        before.copy_(after)

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
