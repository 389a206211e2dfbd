"""Records a program while it runs: the same PyTorch code that computes eagerly builds a graph when it is given values.

A :class:`Value` stands for a tensor of the graph. It has the methods and takes part in the functions of PyTorch that
are in the vocabulary below (by ``__torch_function__``), each of which adds nodes to a graph builder. What is not in the
vocabulary is refused by name, so that nothing is computed in another way than it says. Weights and other plain tensors
become constants. Lengths that differ from call to call are :class:`~longstride.ops.size.Size`.

Operations that PyTorch has no word for (attention over a cache, choosing under limits) are functions of their own in
longstride.ops; they, too, build their part of the graph where they are given values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from longstride.contract import Feeds, GraphSpec, Program
from longstride.ops.graph_builder import GraphBuilder, Handle
from longstride.ops.size import Size, TraceError

FLOAT, INTEGER, BOOLEAN = torch.float32, torch.int64, torch.bool

VOCABULARY: dict[str, Callable[..., Any]] = {}
"""PyTorch's functions and methods that a graph can be made of, by name."""


class Value:
    """A tensor of a graph that is being recorded."""

    is_cuda = False
    device = torch.device("cpu")
    requires_grad = False

    def __init__(self, tracer: Tracer, handle: Handle, dtype: torch.dtype, sizes: Sequence[Any]) -> None:
        self.tracer, self.handle, self.dtype = tracer, handle, dtype
        self._sizes: list[Any] = list(sizes)
        self.summands: tuple[Value, Value] | None = None
        """what it is the sum of, if it is one: a norm takes the sum along"""
        self.looked_up: tuple[Tensor, Value] | None = None
        """the plain table and the ids whose rows it is, if it is that: scaling it is scaling the table beforehand"""
        self.layers: list[Value] | None = None
        """of an input that has layers for its first dimension: each by itself"""

    # --- what every tensor has ---------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[Any, ...]:
        """Lengths; those that are not known yet are looked up when the graph runs."""
        return tuple(self.size(axis) for axis in range(len(self._sizes)))

    def size(self, axis: int) -> Any:
        """One of them."""
        axis %= len(self._sizes)
        known = self._sizes[axis]
        if known is None:
            builder, handle = self.tracer.builder, self.handle
            known = self._sizes[axis] = Size(builder, lambda: builder.size(handle, axis))
        return known

    def dim(self) -> int:
        """How many dimensions it has."""
        return len(self._sizes)

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self._sizes)

    @property
    def sizes(self) -> list[Any]:
        """Lengths as far as they are known."""
        return list(self._sizes)

    def set_size(self, axis: int, length: Any) -> None:
        """Tell it one of them."""
        self._sizes[axis] = length

    def is_floating_point(self) -> bool:
        """Whether it holds real numbers."""
        return self.dtype == FLOAT

    def contiguous(self) -> Value:
        """Values have no memory to be laid out in."""
        return self

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, arguments: tuple[Any, ...] = (), options: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(function, "__name__", str(function)).strip("_")
        if name not in VOCABULARY:
            raise TraceError(f"the function {name} is not in the vocabulary of graphs")
        return VOCABULARY[name](*arguments, **(options or {}))

    def _word(self, name: str, *others: Any) -> Value:
        found: Value = VOCABULARY[name](self, *others)
        return found

    def __getattr__(self, name: str) -> Any:
        if name in VOCABULARY:
            return partial(VOCABULARY[name], self)
        raise AttributeError(f"the method {name} is not in the vocabulary of graphs")

    def __getitem__(self, index: Any) -> Value:
        return self._word("getitem", index)

    def __add__(self, other: Any) -> Value:
        return self._word("add", other)

    def __sub__(self, other: Any) -> Value:
        return self._word("sub", other)

    def __mul__(self, other: Any) -> Value:
        return self._word("mul", other)

    def __truediv__(self, other: Any) -> Value:
        return self._word("div", other)

    def __floordiv__(self, other: Any) -> Value:
        return self._word("div", other)

    def __radd__(self, other: Any) -> Value:
        return self._word("add", other)

    def __rsub__(self, other: Any) -> Value:
        return self._word("rsub", other)

    def __rmul__(self, other: Any) -> Value:
        return self._word("mul", other)

    def __lt__(self, other: Any) -> Value:
        return self._word("lt", other)

    def __le__(self, other: Any) -> Value:
        return self._word("le", other)

    def __gt__(self, other: Any) -> Value:
        return self._word("gt", other)

    def __ge__(self, other: Any) -> Value:
        return self._word("ge", other)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return self._word("eq", other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return ~(self == other)

    __hash__ = object.__hash__

    def __and__(self, other: Any) -> Value:
        return self._word("and", other)

    def __or__(self, other: Any) -> Value:
        return self._word("or", other)

    def __invert__(self) -> Value:
        return self._word("logical_not")

    def __matmul__(self, other: Any) -> Value:
        return self._word("matmul", other)

    def __bool__(self) -> bool:
        raise TraceError("a program that is traced may not depend on the numbers in a tensor")

    def __iter__(self) -> Any:
        length = self.size(0)
        if not isinstance(length, int):
            raise TraceError("a program that is traced may not go over a dimension that differs from call to call")
        return iter([self[place] for place in range(length)])


class Tracer:
    """One graph in the making."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder
        self._once: dict[Hashable, Any] = {}
        self._kept: list[object] = []  # keys may be made of ids: what these are of must stay

    def value(self, handle: Handle, dtype: torch.dtype, sizes: Sequence[Any]) -> Value:
        """A value of the graph."""
        return Value(self, handle, dtype, sizes)

    def constant(self, tensor: Tensor) -> Value:
        """A plain tensor as a value; the same tensor is the same value."""
        return self.once(  # type: ignore[no-any-return]
            ("constant", id(tensor)),
            lambda: self.value(self.builder.constant(tensor), tensor.dtype, list(tensor.shape)),
            tensor,
        )

    def once(self, key: Hashable, make: Callable[[], Any], *of: object) -> Any:
        """What is made for the first who asks and kept for those who ask again; `of`: whose ids are in the key."""
        if key not in self._once:
            self._once[key] = make()
            self._kept.extend(of)
        return self._once[key]

    def apart(self) -> dict[Hashable, Any]:
        """What is known so far: to go back to by :meth:`forget` after a part of the graph that others cannot read."""
        return dict(self._once)

    def forget(self, known: dict[Hashable, Any]) -> None:
        """See :meth:`apart`."""
        self._once = known


def tracer_of(*arguments: Any) -> Tracer | None:
    """The tracer whose values are among these, or None where all are plain."""
    for argument in arguments:
        if isinstance(argument, Value):
            return argument.tracer
        if isinstance(argument, tuple | list):
            found = tracer_of(*argument)
            if found is not None:
                return found
    return None


def lifted(tracer: Tracer, x: Any, like: torch.dtype | None = None) -> Value:
    """A value of anything that may stand beside one: a plain tensor, a number (in the type of its neighbour), a size"""
    if isinstance(x, Value):
        return x
    if isinstance(x, Tensor):
        return tracer.constant(x)
    if isinstance(x, Size):
        return tracer.value(x.handle, INTEGER, [1])
    if isinstance(x, bool):
        return tracer.value(tracer.builder.constant(torch.tensor(x)), BOOLEAN, [])
    dtype = FLOAT if isinstance(x, float) or like == FLOAT else INTEGER
    return tracer.value(tracer.builder.constant(torch.tensor(x, dtype=dtype)), dtype, [])


W = TypeVar("W", bound=Callable[..., Any])


def word(function: W) -> W:
    """Enter a function into the vocabulary by its name."""
    VOCABULARY[function.__name__.strip("_")] = function
    return function


def axis_of(x: Value, dim: int) -> int:
    """A dimension as backends know it: the last one is -1, by which they tell what can be done together."""
    return -1 if dim % x.dim() == x.dim() - 1 else dim % x.dim()


# --- from a function of tensors to what a graph backend calls while it builds ----------------------------------------


Specification = Mapping[str, tuple[torch.dtype, tuple[str | int, ...]]]
"""Name -> type and shape; a length that differs from call to call has a name, the same wherever it is the same."""


def traced(
    name: str,
    function: Callable[..., Any],
    modules: tuple[nn.Module, ...],
    inputs: Specification,
    outputs: Specification,
    *,
    state: Specification | None = None,
    feeds: Callable[..., Feeds] | None = None,
    arguments: Callable[[Mapping[str, Any]], tuple[Any, ...]] | None = None,
    results: Callable[[Any], Mapping[str, Any]] | None = None,
    result: Callable[[Mapping[str, Tensor], Feeds], Any] | None = None,
    layered: frozenset[str] = frozenset(),
    settings: tuple[Hashable, ...] = (),
) -> Program:
    """A program whose graph is its function, run on values: `arguments` makes what it takes of inputs and states by
    name, `results` names what it gives. What the others are, :class:`GraphSpec` says.

    Unless told otherwise it takes its inputs in order, and gives its one output or a tuple of them; what is traced may
    also give anything that has them for attributes.
    """
    state = state or {}

    def record(builder: GraphBuilder, given: Mapping[str, Any]) -> dict[str, Any]:
        tracer = Tracer(builder)
        sizes: dict[str, Size] = {}
        values = {
            name: _placeholder(tracer, given[name], dtype, shape, sizes)
            for name, (dtype, shape) in {**inputs, **state}.items()
        }
        found = function(*(arguments(values) if arguments else (values[name] for name in inputs)))
        every = results(found) if results else named(found)
        new = {name: _handles(values[name]) for name in state}
        return {**{name: value.handle for name, value in every.items()}, **new}

    def named(found: Any) -> dict[str, Any]:
        if len(outputs) == 1:
            return dict.fromkeys(outputs, found)
        if isinstance(found, tuple):
            return dict(zip(outputs, found, strict=True))
        return {name: getattr(found, name) for name in outputs}

    def in_order(found: Mapping[str, Tensor], feeds: Feeds) -> Any:
        every = tuple(found[name] for name in outputs)
        return every[0] if len(every) == 1 else every

    def fed(*given: Tensor) -> Feeds:
        return Feeds(dict(zip(inputs, given, strict=True)))

    spec = GraphSpec(modules, feeds or fed, inputs, state, outputs, record, result or in_order, layered, settings)
    return Program(name, function, spec)


def _placeholder(
    tracer: Tracer, handle: Any, dtype: torch.dtype, shape: tuple[str | int, ...], sizes: dict[str, Size]
) -> Value:
    if isinstance(handle, list):
        whole = tracer.value(None, dtype, [len(handle), *[None] * (len(shape) - 1)])
        whole.layers = [_placeholder(tracer, one, dtype, shape[1:], sizes) for one in handle]
        for axis, size in enumerate(whole.layers[0].shape, start=1):
            whole.set_size(axis, size)
        return whole
    lengths: list[Any] = []
    for axis, length in enumerate(shape):
        if isinstance(length, str):
            if length not in sizes:
                sizes[length] = _length(tracer.builder, handle, axis)
            lengths.append(sizes[length])
        else:
            lengths.append(length)
    return tracer.value(handle, dtype, lengths)


def _length(builder: GraphBuilder, handle: Handle, axis: int) -> Size:
    return Size(builder, lambda: builder.size(handle, axis))


def _handles(value: Value) -> Any:
    return value.handle if value.layers is None else [layer.handle for layer in value.layers]
