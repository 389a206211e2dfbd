"""One graph of a program, called on torch's own memory: nothing is copied in or out, caches are written in place.

Knows graphs, not what they are for, nor who carries them out.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from longstride.contract import Feeds, GraphSpec
from longstride.contract.running import Shape


class HalfDoneError(Exception):
    """A graph failed when it had written states: to carry the program out once more would write them twice."""


class Placement(ABC):
    """Where a graph finds its tensors; what lies where is kept from call to call, and renewed where memory moved."""

    def __init__(self, spec: GraphSpec) -> None:
        self._spec = spec
        self._held: dict[str, Tensor] = {}  # what lies here: as long as it is held, its memory is nobody else's
        self._left: dict[str, weakref.ref[Tensor]] = {}  # what lay here last, for as long as somebody else holds it
        self._given: dict[str, Tensor] = {}  # the outputs of the last call, likewise
        self._sizes: dict[str, dict[str, int]] = {}  # the dimensions that each of them has, by name
        self._dimensions: dict[str, int] | None = None  # and all of these together; None where they have to be found
        self._inputs, self._states, self._outputs = (
            [(name, dtype, shape) for name, (dtype, shape) in values.items()]
            for values in (spec.inputs, spec.state, spec.outputs)
        )

    @abstractmethod
    def run(self) -> None:
        """Carry the graph out on what lies here."""

    @abstractmethod
    def put(self, name: str, tensor: Tensor, shape: Shape, written: bool, resized: bool) -> None:
        """Have the graph find an input or a state, which is `written`, in this tensor; `resized`: what lay here before
        had other sizes, or nothing did."""

    @abstractmethod
    def room(self, name: str, dtype: torch.dtype, sizes: list[int]) -> Tensor:
        """New memory for an output."""

    def check_outputs(self) -> None:  # noqa: B027 (most need not look)
        """Refuse outputs that are not as large as was said."""

    def lay(self, feeds: Feeds) -> list[tuple[Tensor, Tensor]]:
        """Put inputs and states down; gives states whose memory a graph cannot write: (there, here)."""
        moved: list[tuple[Tensor, Tensor]] = []
        for name, dtype, shape in self._inputs:
            tensor = feeds.inputs[name]
            if not self._lies(name, tensor):
                self._lay(name, tensor.to(dtype).contiguous(), shape, written=False)
        for name, _, shape in self._states:
            tensor = feeds.state[name]
            if not tensor.is_contiguous():
                moved.append((tensor, tensor.contiguous()))
                tensor = moved[-1][1]
            if not self._lies(name, tensor):
                self._lay(name, tensor, shape, written=True)
        return moved

    def leave(self) -> None:
        """Hold no tensor any more, but know those again that others hold."""
        self._left |= {name: weakref.ref(tensor) for name, tensor in self._held.items()}
        self._held, self._given = {}, {}

    def _lies(self, name: str, tensor: Tensor) -> bool:
        if name in self._left:
            before = self._left.pop(name)()
            if before is None:
                return False
            self._held[name] = before
        return self._held.get(name) is tensor

    def lay_outputs(self, feeds: Feeds) -> dict[str, Tensor]:
        """Memory for outputs, after all that goes in."""
        if self._dimensions is None:  # otherwise all that lies here has the sizes it had
            self._dimensions = {size: length for sizes in self._sizes.values() for size, length in sizes.items()}
        dimensions = {**self._dimensions, **feeds.sizes} if feeds.sizes else self._dimensions
        self._given = {
            name: self.room(name, dtype, [dimensions[size] if isinstance(size, str) else size for size in shape])
            for name, dtype, shape in self._outputs
        }
        return self._given

    def _lay(self, name: str, tensor: Tensor, shape: Shape, written: bool) -> None:
        before = self._held.get(name)
        resized = before is None or before.shape != tensor.shape
        if before is not None and not resized and before.data_ptr() == tensor.data_ptr():
            return
        self._held[name] = tensor
        if resized:
            self._dimensions = None
            found = zip(shape, tensor.shape, strict=True)
            self._sizes[name] = {size: length for size, length in found if isinstance(size, str)}
        self.put(name, tensor, shape, written, resized)


class Graph:
    """A program's graph, ready to be called."""

    def __init__(self, spec: GraphSpec, placement: Callable[[], Placement]) -> None:
        """`placement` makes one for this graph."""
        self._spec, self._new = spec, placement
        self._placement = placement()
        self._turn = threading.Lock()  # of whoever lays tensors down, until they have been read
        renewed_in_children(self)

    def renew(self) -> None:
        """In a process that was forked: another thread of its parent's may have been in the midst of a call."""
        self._turn, self._placement = threading.Lock(), self._new()

    def __call__(self, feeds: Feeds) -> dict[str, Tensor]:
        """Outputs by name, in memory of their own; the states have been written."""
        with self._turn:
            moved = self._placement.lay(feeds)
            outputs = self._placement.lay_outputs(feeds)
            self._placement.run()
            self._placement.check_outputs()
            self._placement.leave()  # a table that its session has left must not stay for the graph's sake
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
        placement = self._new()
        placement.lay(feeds)
        return placement.run, placement.lay_outputs(feeds)


class Renewable(Protocol):
    """What holds a lock, or stands half changed, while a process may be forked."""

    def renew(self) -> None:
        """Make it anew, in the child."""


_RENEWABLE: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renewed_in_children(one: Renewable) -> None:
    """Have it made anew in every process that is forked from now on."""
    _RENEWABLE.add(one)


def _forked() -> None:
    for one in list(_RENEWABLE):
        one.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def layer_names(spec: GraphSpec, name: str, shape: Shape) -> tuple[list[str], Shape]:
    """The names an input or state goes by, ``keys.0``, ``keys.1``, ... if it is layered, and the shape of each."""
    if name not in spec.layered:
        return [name], shape
    layers = shape[0]
    assert isinstance(layers, int)
    return [f"{name}.{number}" for number in range(layers)], shape[1:]
