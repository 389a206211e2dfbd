"""Records a program while it runs: the same PyTorch code that computes eagerly builds a graph when it is given values.

A :class:`Value` stands for a tensor of the graph. It has the methods and takes part in the functions of PyTorch that
are in the vocabulary below (by ``__torch_function__``), each of which adds nodes to a graph builder. What is not in the
vocabulary is refused by name, so that nothing is computed in another way than it says. Weights and other plain tensors
become constants. Lengths that differ from call to call are :class:`~longstride.ops.size.Size`.

Operations that PyTorch has no word for (attention over a cache, choosing under limits) are functions of their own in
longstride.ops; they, too, build their part of the graph where they are given values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from longstride.ops.graph_builder import GraphBuilder, Handle
from longstride.ops.size import Length, Size, TraceError, handle_of, joined

FLOAT, INTEGER, BOOLEAN = torch.float32, torch.int64, torch.bool
_ONNX_TYPE = {FLOAT: 1, torch.int32: 6, INTEGER: 7, BOOLEAN: 9}
TO_THE_END = 2**62

VOCABULARY: dict[str, Callable[..., Any]] = {}
"""PyTorch's functions and methods that a graph can be made of, by name."""


class Value:
    """A tensor of a graph that is being recorded."""

    is_cuda = False
    device = torch.device("cpu")
    requires_grad = False

    def __init__(self, tracer: Tracer, handle: Handle, dtype: torch.dtype, sizes: Sequence[Length | None]) -> None:
        self.tracer, self.handle, self.dtype = tracer, handle, dtype
        self._sizes: list[Length | None] = list(sizes)
        self.summands: tuple[Value, Value] | None = None
        """what it is the sum of, if it is one: a norm takes the sum along"""
        self.looked_up: tuple[Tensor, Value] | None = None
        """the plain table and the ids whose rows it is, if it is that: scaling it is scaling the table beforehand"""
        self.layers: list[Value] | None = None
        """of an input that has layers for its first dimension: each by itself"""

    # --- what every tensor has ---------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[Length, ...]:
        """Lengths; those that are not known yet are looked up when the graph runs."""
        return tuple(self.size(axis) for axis in range(len(self._sizes)))

    def size(self, axis: int) -> Length:
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
    def sizes(self) -> list[Length | None]:
        """Lengths as far as they are known."""
        return list(self._sizes)

    def set_size(self, axis: int, length: Length) -> None:
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

    def __getattr__(self, name: str) -> Any:
        if name in VOCABULARY:
            return partial(VOCABULARY[name], self)
        raise AttributeError(f"the method {name} is not in the vocabulary of graphs")

    def __getitem__(self, index: Any) -> Value:
        return _indexed(self, index)

    def __add__(self, other: Any) -> Value:
        return add(self, other)

    def __sub__(self, other: Any) -> Value:
        return _pair("Sub", self, other)

    def __mul__(self, other: Any) -> Value:
        return mul(self, other)

    def __truediv__(self, other: Any) -> Value:
        return _pair("Div", self, other)

    def __floordiv__(self, other: Any) -> Value:
        return _pair("Div", self, other)

    def __radd__(self, other: Any) -> Value:
        return add(self, other)

    def __rsub__(self, other: Any) -> Value:
        return _pair("Sub", other, self)

    def __rmul__(self, other: Any) -> Value:
        return mul(self, other)

    def __lt__(self, other: Any) -> Value:
        return _pair("Less", self, other, BOOLEAN)

    def __le__(self, other: Any) -> Value:
        return _pair("LessOrEqual", self, other, BOOLEAN)

    def __gt__(self, other: Any) -> Value:
        return _pair("Greater", self, other, BOOLEAN)

    def __ge__(self, other: Any) -> Value:
        return _pair("GreaterOrEqual", self, other, BOOLEAN)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return _pair("Equal", self, other, BOOLEAN)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return ~(self == other)

    __hash__ = object.__hash__

    def __and__(self, other: Any) -> Value:
        return _pair("And", self, other, BOOLEAN)

    def __or__(self, other: Any) -> Value:
        return _pair("Or", self, other, BOOLEAN)

    def __invert__(self) -> Value:
        return _like(self, "Not")

    def __matmul__(self, other: Any) -> Value:
        return matmul(self, other)

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

    def value(self, handle: Handle, dtype: torch.dtype, sizes: Sequence[Length | None]) -> Value:
        """A value of the graph."""
        return Value(self, handle, dtype, sizes)

    def constant(self, tensor: Tensor) -> Value:
        """A plain tensor as a value; the same tensor is the same value."""
        return self.once(
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


def word(function: Callable[..., Any]) -> Callable[..., Any]:
    """Enter a function into the vocabulary by its name."""
    VOCABULARY[function.__name__.strip("_")] = function
    return function


# --- element by element ----------------------------------------------------------------------------------------------


def broadcast(left: Sequence[Length | None], right: Sequence[Length | None]) -> list[Length | None]:
    """The lengths of what two tensors make together; where both differ from call to call, they are equal."""
    wide, narrow = (list(left), list(right)) if len(left) >= len(right) else (list(right), list(left))
    offset = len(wide) - len(narrow)
    for axis, other in enumerate(narrow, start=offset):
        here = wide[axis]
        if (
            (isinstance(other, int) and other != 1 and not (isinstance(here, int) and here != 1))
            or here == 1
            or (here is None and other != 1)
        ):
            wide[axis] = other
    return wide


def _pair(kind: str, left: Any, right: Any, dtype: torch.dtype | None = None) -> Value:
    tracer = tracer_of(left, right)
    assert tracer is not None
    a = lifted(tracer, left, getattr(right, "dtype", None))
    b = lifted(tracer, right, getattr(left, "dtype", None))
    if a.dtype != b.dtype:
        wider = FLOAT if FLOAT in (a.dtype, b.dtype) else INTEGER
        a, b = to(a, wider), to(b, wider)
    handle = tracer.builder.node(kind, a.handle, b.handle)
    return tracer.value(handle, dtype or a.dtype, broadcast(a.sizes, b.sizes))


def _like(x: Value, kind: str) -> Value:
    return x.tracer.value(x.tracer.builder.node(kind, x.handle), x.dtype, x.sizes)


@word
def add(left: Any, right: Any, alpha: float = 1.0) -> Value:
    right = right if alpha == 1.0 else right * alpha
    found = _pair("Add", left, right)
    if isinstance(left, Value) and isinstance(right, Value) and left.dim() == right.dim():
        found.summands = (left, right)
    return found


@word
def mul(left: Any, right: Any) -> Value:
    if isinstance(left, Value) and left.looked_up is not None and isinstance(right, float):
        table, ids = left.looked_up
        scaled = left.tracer.once(("scaled", id(table), right), lambda: table.detach() * right, table)
        return embedding(ids, scaled)
    return _pair("Mul", left, right)


for _name, _kind in (("sub", "Sub"), ("div", "Div"), ("minimum", "Min"), ("maximum", "Max")):
    VOCABULARY[_name] = partial(_pair, _kind)
VOCABULARY["rsub"] = lambda right, left: _pair("Sub", left, right)
for _name, _kind in (
    ("lt", "Less"),
    ("le", "LessOrEqual"),
    ("gt", "Greater"),
    ("ge", "GreaterOrEqual"),
    ("eq", "Equal"),
    ("and", "And"),
    ("or", "Or"),
):
    VOCABULARY[_name] = partial(_pair, _kind, dtype=BOOLEAN)
for _name, _kind in (
    ("sigmoid", "Sigmoid"),
    ("relu", "Relu"),
    ("gelu", "Gelu"),
    ("abs", "Abs"),
    ("logical_not", "Not"),
):
    VOCABULARY[_name] = partial(lambda x, kind, **_: _like(x, kind), kind=_kind)


@word
def silu(x: Value, inplace: bool = False) -> Value:
    return x * _like(x, "Sigmoid")


@word
def clamp(x: Value, min: Any = None, max: Any = None) -> Value:
    if min is not None:
        x = _pair("Max", x, min)
    return x if max is None else _pair("Min", x, max)


@word
def where(condition: Any, left: Any, right: Any) -> Value:
    tracer = tracer_of(condition, left, right)
    assert tracer is not None
    condition = lifted(tracer, condition)
    a = lifted(tracer, left, getattr(right, "dtype", None))
    b = lifted(tracer, right, getattr(left, "dtype", None))
    handle = tracer.builder.node("Where", condition.handle, a.handle, b.handle)
    return tracer.value(handle, a.dtype, broadcast(condition.sizes, broadcast(a.sizes, b.sizes)))


@word
def masked_fill(x: Value, mask: Any, value: float) -> Value:
    return where(mask, value, x)


@word
def to(x: Value, *wanted: Any, **_: Any) -> Value:
    dtype = next((one for one in wanted if isinstance(one, torch.dtype)), x.dtype)
    dtype = FLOAT if dtype.is_floating_point else dtype
    if dtype == x.dtype:
        return x
    return x.tracer.value(x.tracer.builder.node("Cast", x.handle, to=_ONNX_TYPE[dtype]), dtype, x.sizes)


@word
def float_(x: Value) -> Value:
    return to(x, FLOAT)


@word
def long(x: Value) -> Value:
    return to(x, INTEGER)


@word
def lerp(first: Value, last: Value, weight: Any) -> Value:
    return first + weight * (last - first)


@word
def zeros_like(x: Value) -> Value:
    return x * 0


@word
def ones_like(x: Value) -> Value:
    return x * 0 + 1


@word
def full_like(x: Value, value: Any) -> Value:
    return x * 0 + value


@word
def dropout(x: Value, p: Any = 0.5, training: bool = False, inplace: bool = False) -> Value:
    if training:
        raise TraceError("dropout is for training: graphs only infer")
    return x


# --- over one dimension ----------------------------------------------------------------------------------------------


def _axis(x: Value, dim: int) -> int:
    """As backends know it: the last one is -1, by which they tell what can be done together."""
    return -1 if dim % x.dim() == x.dim() - 1 else dim % x.dim()


def _without(x: Value, axis: int, kept: bool) -> list[Length | None]:
    sizes = x.sizes
    if kept:
        sizes[axis] = 1
    else:
        del sizes[axis]
    return sizes


@word
def softmax(x: Value, dim: int, **_: Any) -> Value:
    return x.tracer.value(x.tracer.builder.node("Softmax", x.handle, axis=dim), x.dtype, x.sizes)


@word
def log_softmax(x: Value, dim: int, **_: Any) -> Value:
    return x.tracer.value(x.tracer.builder.node("LogSoftmax", x.handle, axis=dim), x.dtype, x.sizes)


@word
def argmax(x: Value, dim: int, keepdim: bool = False) -> Value:
    if x.dtype == BOOLEAN:
        x = to(x, torch.int32)
    handle = x.tracer.builder.node("ArgMax", x.handle, axis=_axis(x, dim), keepdims=int(keepdim))
    return x.tracer.value(handle, INTEGER, _without(x, dim % x.dim(), keepdim))


@word
def amax(x: Value, dim: int, keepdim: bool = False) -> Value:
    axis = x.tracer.builder.integers(_axis(x, dim))
    handle = x.tracer.builder.node("ReduceMax", x.handle, axis, keepdims=int(keepdim))
    return x.tracer.value(handle, x.dtype, _without(x, dim % x.dim(), keepdim))


@word
def max_(x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return amax(x, dim, keepdim), argmax(x, dim, keepdim)


@word
def sum_(x: Value, dim: int, keepdim: bool = False, dtype: Any = None) -> Value:
    x = to(x, INTEGER) if x.dtype == BOOLEAN else x
    axis = x.tracer.builder.integers(_axis(x, dim))
    handle = x.tracer.builder.node("ReduceSum", x.handle, axis, keepdims=int(keepdim))
    return x.tracer.value(handle, x.dtype, _without(x, dim % x.dim(), keepdim))


@word
def topk(x: Value, k: int, dim: int = -1) -> tuple[Value, Value]:
    sizes = x.sizes
    sizes[dim] = k
    builder = x.tracer.builder
    values, ids = builder.node("TopK", x.handle, builder.integers(k), outputs=2, axis=dim)
    return x.tracer.value(values, x.dtype, sizes), x.tracer.value(ids, INTEGER, sizes)


# --- products --------------------------------------------------------------------------------------------------------


@word
def matmul(left: Any, right: Any) -> Value:
    tracer = tracer_of(left, right)
    assert tracer is not None
    a, b = lifted(tracer, left), lifted(tracer, right)
    sizes = broadcast(a.sizes[:-2], b.sizes[:-2])
    return tracer.value(tracer.builder.node("MatMul", a.handle, b.handle), FLOAT, [*sizes, a.sizes[-2], b.sizes[-1]])


@word
def linear(x: Value, weight: Tensor, bias: Tensor | None = None) -> Value:
    return x.tracer.value(x.tracer.builder.linear(x.handle, weight, bias), FLOAT, [*x.sizes[:-1], weight.shape[0]])


@word
def layer_norm(x: Value, shape: Any, weight: Tensor, bias: Tensor, eps: Any = 1e-5) -> Value:
    base, added = (x.handle, None) if x.summands is None else (one.handle for one in x.summands)
    return x.tracer.value(x.tracer.builder.norm(base, weight, bias, eps, added), FLOAT, x.sizes)


@word
def embedding(ids: Any, table: Any, *_: Any, **__: Any) -> Value:
    tracer = tracer_of(ids, table)
    assert tracer is not None
    ids, rows = lifted(tracer, ids), lifted(tracer, table)
    handle = tracer.builder.node("Gather", rows.handle, ids.handle, axis=0)
    found = tracer.value(handle, rows.dtype, [*ids.sizes, *rows.sizes[1:]])
    if isinstance(table, Tensor):
        found.looked_up = (table, ids)
    return found


# --- shapes ----------------------------------------------------------------------------------------------------------


def _shape(x: Value, lengths: tuple[Any, ...]) -> list[Length]:
    given = list(lengths[0]) if len(lengths) == 1 and isinstance(lengths[0], tuple | list) else list(lengths)
    return given


@word
def reshape(x: Value, *lengths: Any) -> Value:
    wanted = _shape(x, lengths)
    builder = x.tracer.builder
    # A length that stays in its place needs no looking up.
    kept = [
        0 if place < x.dim() and isinstance(length, Size) and x.sizes[place] is length else length
        for place, length in enumerate(wanted)
    ]
    sizes = _filled(x.sizes, wanted)
    return x.tracer.value(builder.node("Reshape", x.handle, joined(builder, kept)), x.dtype, sizes)


def _filled(before: list[Length | None], wanted: list[Length]) -> list[Length | None]:
    """A shape's lengths, with what -1 stands for if that follows from those that are known"""
    sizes: list[Length | None] = [None if isinstance(length, int) and length == -1 else length for length in wanted]
    if None not in sizes:
        return sizes
    same = 0
    while same < min(len(before), len(sizes)) and before[same] is not None and before[same] is sizes[same]:
        same += 1
    rest, others = before[same:], [size for size in sizes[same:] if size is not None]
    if all(isinstance(size, int) for size in (*rest, *others)):
        numbers = [int(size) for size in rest if isinstance(size, int)]
        sizes[sizes.index(None)] = math.prod(numbers) // math.prod(
            int(size) for size in others if isinstance(size, int)
        )
    return sizes


VOCABULARY["view"] = reshape


@word
def flatten(x: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    first, last = start_dim % x.dim(), end_dim % x.dim()
    return reshape(x, *x.shape[:first], -1, *x.shape[last + 1 :])


@word
def permute(x: Value, *order: Any) -> Value:
    axes = [axis % x.dim() for axis in _shape(x, order)]
    handle = x.tracer.builder.node("Transpose", x.handle, perm=axes)
    return x.tracer.value(handle, x.dtype, [x.sizes[axis] for axis in axes])


@word
def transpose(x: Value, first: int, second: int) -> Value:
    axes = list(range(x.dim()))
    axes[first], axes[second] = axes[second], axes[first]
    return permute(x, *axes)


@word
def unsqueeze(x: Value, dim: int) -> Value:
    axis = dim % (x.dim() + 1)
    handle = x.tracer.builder.node("Unsqueeze", x.handle, x.tracer.builder.integers(axis))
    sizes = x.sizes
    sizes.insert(axis, 1)
    return x.tracer.value(handle, x.dtype, sizes)


@word
def squeeze(x: Value, dim: int) -> Value:
    axis = dim % x.dim()
    handle = x.tracer.builder.node("Squeeze", x.handle, x.tracer.builder.integers(axis))
    return x.tracer.value(handle, x.dtype, _without(x, axis, False))


@word
def expand(x: Value, *lengths: Any) -> Value:
    wanted = _shape(x, lengths)
    sizes = x.sizes
    offset = len(wanted) - len(sizes)
    found: list[Length | None] = []
    for place, length in enumerate(wanted):
        stays = isinstance(length, int) and length == -1
        found.append(sizes[place - offset] if stays else length)
    asked = [1 if isinstance(length, int) and length == -1 else length for length in wanted]
    return x.tracer.value(x.tracer.builder.node("Expand", x.handle, joined(x.tracer.builder, asked)), x.dtype, found)


@word
def expand_as(x: Value, other: Value) -> Value:
    return expand(x, *other.shape)


@word
def cat(parts: Sequence[Any], dim: int = 0) -> Value:
    tracer = tracer_of(*parts)
    assert tracer is not None
    values = [lifted(tracer, part) for part in parts]
    axis = dim % values[0].dim()
    sizes = values[0].sizes
    for value in values[1:]:
        sizes = [here if here is not None else there for here, there in zip(sizes, value.sizes, strict=True)]
    lengths = [value.size(axis) for value in values]
    total = lengths[0]
    for length in lengths[1:]:
        total = total + length
    sizes[axis] = total
    return tracer.value(
        tracer.builder.node("Concat", *(value.handle for value in values), axis=axis), values[0].dtype, sizes
    )


@word
def stack(parts: Sequence[Value], dim: int = 0) -> Value:
    return cat([unsqueeze(part, dim) for part in parts], dim)


@word
def chunk(x: Value, parts: int, dim: int = 0) -> tuple[Value, ...]:
    axis = dim % x.dim()
    whole = x.sizes[axis]
    sizes = x.sizes
    sizes[axis] = whole // parts if isinstance(whole, int) else None
    found = x.tracer.builder.node("Split", x.handle, outputs=parts, axis=_axis(x, dim), num_outputs=parts)
    return tuple(x.tracer.value(handle, x.dtype, sizes) for handle in (found if parts > 1 else [found]))


@word
def unbind(x: Value, dim: int = 0) -> tuple[Value, ...]:
    length = x.size(dim)
    if not isinstance(length, int):
        raise TraceError("a program that is traced may not go over a dimension that differs from call to call")
    return tuple(squeeze(part, dim) for part in chunk(x, length, dim))


@word
def split(x: Value, lengths: Sequence[Any], dim: int = 0) -> tuple[Value, ...]:
    builder = x.tracer.builder
    if len(lengths) == 1:
        return (x,)
    found = builder.node("Split", x.handle, joined(builder, list(lengths)), outputs=len(lengths), axis=dim % x.dim())
    parts = []
    for handle, length in zip(found, lengths, strict=True):
        sizes = x.sizes
        sizes[dim] = length
        parts.append(x.tracer.value(handle, x.dtype, sizes))
    return tuple(parts)


@word
def unflatten(x: Value, dim: int, lengths: Sequence[Any]) -> Value:
    axis = dim % x.dim()
    return reshape(x, *x.shape[:axis], *lengths, *x.shape[axis + 1 :])


@word
def narrow(x: Value, dim: int, start: Any, length: Any) -> Value:
    return cut(x, dim, start, start + length)


@word
def pad(x: Value, amounts: Sequence[Any], mode: str = "constant", value: Any = None) -> Value:
    builder, sizes = x.tracer.builder, x.sizes
    axes, before, after = [], [], []
    for place in range(len(amounts) // 2):
        axis = x.dim() - 1 - place
        left, right = amounts[2 * place], amounts[2 * place + 1]
        if isinstance(left, int) and left == 0 and isinstance(right, int) and right == 0:
            continue
        sizes[axis] = x.size(axis) + left + right
        axes.append(axis)
        before.append(left)
        after.append(right)
    if not axes:
        return x
    filler: Any = "" if value is None or value == 0 else lifted(x.tracer, value, x.dtype).handle
    handle = builder.node("Pad", x.handle, joined(builder, [*before, *after]), filler, builder.integers(*axes))
    return x.tracer.value(handle, x.dtype, sizes)


@word
def gather(x: Value, dim: int, index: Any) -> Value:
    index = lifted(x.tracer, index)
    handle = x.tracer.builder.node("GatherElements", x.handle, index.handle, axis=_axis(x, dim))
    return x.tracer.value(handle, x.dtype, index.sizes)


@word
def index_select(x: Value, dim: int, index: Any) -> Value:
    index = lifted(x.tracer, index)
    axis = dim % x.dim()
    sizes = [*x.sizes[:axis], *index.sizes, *x.sizes[axis + 1 :]]
    return x.tracer.value(x.tracer.builder.node("Gather", x.handle, index.handle, axis=axis), x.dtype, sizes)


def cut(x: Value, axis: int, first: Any, last: Any) -> Value:
    """The slice from `first` to `last` (None: to the end) of one dimension."""
    builder, sizes, whole = x.tracer.builder, x.sizes, x.sizes[axis]
    begins_first = isinstance(first, int) and first == 0
    if begins_first and last is None:
        return x
    if isinstance(first, int) and first < 0:
        first = x.size(axis) + first
    if isinstance(last, int) and last < 0:
        last = x.size(axis) + last
    if begins_first:
        sizes[axis] = last
    elif last is None:
        sizes[axis] = None if whole is None else whole - first
    else:
        sizes[axis] = last - first
    if isinstance(whole, int) and isinstance(sizes[axis], int):
        end = whole if last is None else last
        sizes[axis] = (end if end < whole else whole) - (first if first < whole else whole)
    ends = builder.integers(TO_THE_END) if last is None else handle_of(builder, last)
    return x.tracer.value(builder.cut(x.handle, handle_of(builder, first), ends, axis), x.dtype, sizes)


def _indexed(x: Value, index: Any) -> Value:
    index = index if isinstance(index, tuple) else (index,)
    if x.layers is not None and len(index) == 1 and isinstance(index[0], int):
        return x.layers[index[0]]
    if any(one is ... for one in index):
        place = next(number for number, one in enumerate(index) if one is ...)
        given = [one for one in index if one is not None and one is not ...]
        missing = x.dim() - len(given)
        index = (*index[:place], *([slice(None)] * missing), *index[place + 1 :])
    axis = 0
    for one in index:
        if one is None:
            x = unsqueeze(x, axis)
            axis += 1
        elif isinstance(one, slice):
            if one.step not in (None, 1):
                raise TraceError("slices with a step are not in the vocabulary of graphs")
            x = cut(x, axis, 0 if one.start is None else one.start, one.stop)
            axis += 1
        elif isinstance(one, int):
            ends = one + 1 if one != -1 else None
            x = squeeze(cut(x, axis, one, ends), axis)
        elif isinstance(one, Value | Tensor):
            chosen = lifted(x.tracer, one)
            x = index_select(x, axis, chosen)
            axis += chosen.dim()
        else:
            raise TraceError(f"indexing by {type(one).__name__} is not in the vocabulary of graphs")
    return x
