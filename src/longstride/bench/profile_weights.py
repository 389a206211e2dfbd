"""How many bytes of weights each stage of a decoder reads: the least that has to come from memory for it.

Every operation of PyTorch's is seen as it is carried out; where one reads a parameter, or part of one, these bytes
count once per stage. Rows that are looked up (input embeddings, positions) do not count, nor does a reshaped view that
nobody computes with; an embedding that is also the output projection counts as that. Keys, values and activations are
left out: they are small beside the weights for a sentence, and grow with it.

Seen with the plain kernels of PyTorch, never with a runtime's own: for the same stages as another runner has, it takes
that runner's choices of shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from longstride.bench.profile_watch import Delegate, part_name
from longstride.contract import Precision, Program, Runner
from longstride.contract.running import R

LOOKED_UP = ("aten::embedding", "aten::index", "aten::index_select", "aten::gather")
"""Read some rows of a table."""
EMPTY_LIKE = ("aten::new_", "aten::zeros_like", "aten::ones_like", "aten::empty_like", "aten::full_like")
"""Read a shape and a type alone."""

Interval = tuple[int, int]
"""First byte, and the one behind the last."""


class ReadingRunner(Delegate):
    """An eager runner whose stages are those of `like`; it notes what weights of known modules each of them reads."""

    def __init__(self, runner: Runner, like: Runner) -> None:
        super().__init__(runner)
        self.records, self.binds = like.records, like.binds
        self.read: dict[str, int] = {}
        """bytes by stage, of the call that read most"""
        self._like = like
        self._within: list[str] = []
        self._known: dict[int, Tensor] = {}

    def know(self, modules: Iterable[nn.Module]) -> None:
        """Whose parameters are weights."""
        for module in modules:
            for parameter in module.parameters():
                self._known[parameter.untyped_storage().data_ptr()] = parameter

    def round_up(self, size: int, least: int = 1) -> int:
        """As the other would choose."""
        return self._like.round_up(size, least)

    def call(self, program: Program, *arguments: Any) -> Any:
        """Run it, seen."""
        return self._seen(program.name, partial(self.runner.call, program, *arguments))

    def bound(self, program: Program, *arguments: Any) -> Callable[[], Any]:
        """The same call again and again, seen."""
        return partial(self.call, program, *arguments)

    def record(self, name: str, function: Callable[[], R], state: Sequence[Tensor]) -> Callable[[], R]:
        """The function itself, seen as one stage where the other runner would repeat a recording."""
        return partial(self._seen, name, function) if self.records else function

    def _seen(self, name: str, function: Callable[[], R]) -> R:
        """Of what runs within a recording, both are told."""
        name = part_name(self._within[0], name) if self._within else name
        self._within.append(name)
        reads = _Reads(self._known)
        try:
            with torch.inference_mode(), reads:  # recordings are repeated in any mode
                found = function()
        finally:
            self._within.pop()
        self.read[name] = max(self.read.get(name, 0), reads.bytes(self._like.precision))
        return found


class _Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes which bytes of some parameters operations read."""

    def __init__(self, known: dict[int, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known = known
        self._intervals: dict[int, list[Interval]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        if name not in LOOKED_UP and not name.startswith(EMPTY_LIKE) and not _is_view(func):
            for tensor in _tensors([*args, *kwargs.values()]):
                self._note(tensor)
        return func(*args, **kwargs)

    def _note(self, tensor: Tensor) -> None:
        place = tensor.untyped_storage().data_ptr()
        if place not in self._known or not tensor.numel():
            return
        first = int(tensor.storage_offset())
        last = first + sum(int(size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        size = tensor.element_size()
        self._intervals.setdefault(place, []).append((first * size, (last + 1) * size))

    def bytes(self, precision: Precision) -> int:
        """All that was read, each byte once, as wide as it is in this precision."""
        total = 0
        for place, intervals in self._intervals.items():
            parameter = self._known[place]
            # The integers' runtime keeps matrices in one byte per weight, and all else as it is.
            narrowed = parameter.element_size() if precision == "int8" and parameter.dim() > 1 else 1
            total += merged_length(intervals) // narrowed
        return total


def merged_length(intervals: Sequence[Interval]) -> int:
    """How much is covered by any of them."""
    covered, end = 0, 0
    for first, last in sorted(intervals):
        covered += max(0, last - max(first, end))
        end = max(end, last)
    return covered


def _is_view(func: Any) -> bool:
    """Whether its result lies in the memory of what it is given, unwritten."""
    returns = [one.alias_info for one in func._schema.returns]
    return bool(returns) and all(alias is not None and not alias.is_write for alias in returns)


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _tensors(value)
    return found
