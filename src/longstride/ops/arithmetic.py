"""The words of the vocabulary that compute: element by element, over one dimension, products.

Each has the name and the arguments of PyTorch's function or method; what it does is PyTorch's too, in nodes of a graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from longstride.ops.size import TraceError
from longstride.ops.trace import BOOLEAN, FLOAT, INTEGER, VOCABULARY, Value, axis_of, lifted, tracer_of, word

_ONNX_TYPE = {FLOAT: 1, INTEGER: 7, BOOLEAN: 9}


# --- element by element ----------------------------------------------------------------------------------------------


def broadcast(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
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
        a, b = _to(a, wider), _to(b, wider)
    handle = tracer.builder.node(kind, a.handle, b.handle)
    return tracer.value(handle, dtype or a.dtype, broadcast(a.sizes, b.sizes))


def _like(x: Value, kind: str) -> Value:
    return x.tracer.value(x.tracer.builder.node(kind, x.handle), x.dtype, x.sizes)


@word
def _add(left: Any, right: Any, alpha: float = 1.0) -> Value:
    right = right if alpha == 1.0 else right * alpha
    found = _pair("Add", left, right)
    if isinstance(left, Value) and isinstance(right, Value) and left.dim() == right.dim():
        found.summands = (left, right)
    return found


@word
def _mul(left: Any, right: Any) -> Value:
    if isinstance(left, Value) and left.looked_up is not None and isinstance(right, float):
        table, ids = left.looked_up
        scaled = left.tracer.once(("scaled", id(table), right), lambda: table.detach() * right, table)
        return _embedding(ids, scaled)
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
    ("abs", "Abs"),
    ("logical_not", "Not"),
):
    VOCABULARY[_name] = partial(lambda x, kind, **_: _like(x, kind), kind=_kind)


@word
def _gelu(x: Value, approximate: str = "none") -> Value:
    if approximate == "none":
        return _like(x, "Gelu")
    # 0.5 x (1 + tanh(z)) is x times the sigmoid of 2 z
    inner = x * (2 * math.sqrt(2 / math.pi)) * (_pair("Add", x * x * 0.044715, 1.0))
    return _pair("Mul", x, _like(inner, "Sigmoid"))


@word
def _silu(x: Value, inplace: bool = False) -> Value:
    return x * _like(x, "Sigmoid")


@word
def _clamp(x: Value, min: Any = None, max: Any = None) -> Value:
    if min is not None:
        x = _pair("Max", x, min)
    return x if max is None else _pair("Min", x, max)


@word
def _where(condition: Any, left: Any, right: Any) -> Value:
    tracer = tracer_of(condition, left, right)
    assert tracer is not None
    condition = lifted(tracer, condition)
    a = lifted(tracer, left, getattr(right, "dtype", None))
    b = lifted(tracer, right, getattr(left, "dtype", None))
    handle = tracer.builder.node("Where", condition.handle, a.handle, b.handle)
    return tracer.value(handle, a.dtype, broadcast(condition.sizes, broadcast(a.sizes, b.sizes)))


@word
def _masked_fill(x: Value, mask: Any, value: float) -> Value:
    return _where(mask, value, x)


@word
def _to(x: Value, *wanted: Any, **_: Any) -> Value:
    dtype = next((one for one in wanted if isinstance(one, torch.dtype)), x.dtype)
    dtype = FLOAT if dtype.is_floating_point else dtype
    if dtype == x.dtype:
        return x
    return x.tracer.value(x.tracer.builder.node("Cast", x.handle, to=_ONNX_TYPE[dtype]), dtype, x.sizes)


@word
def _float(x: Value) -> Value:
    return _to(x, FLOAT)


@word
def _long(x: Value) -> Value:
    return _to(x, INTEGER)


@word
def _lerp(first: Value, last: Value, weight: Any) -> Value:
    return _pair("Add", first, weight * (last - first))


@word
def _zeros_like(x: Value) -> Value:
    return x * 0


@word
def _ones_like(x: Value) -> Value:
    return x * 0 + 1


@word
def _full_like(x: Value, value: Any) -> Value:
    return _pair("Add", x * 0, value)


@word
def _dropout(x: Value, p: Any = 0.5, training: bool = False, inplace: bool = False) -> Value:
    if training:
        raise TraceError("dropout is for training: graphs only infer")
    return x


# --- over one dimension ----------------------------------------------------------------------------------------------


def _without(x: Value, axis: int, kept: bool) -> list[Any]:
    sizes = x.sizes
    if kept:
        sizes[axis] = 1
    else:
        del sizes[axis]
    return sizes


@word
def _softmax(x: Value, dim: int, **_: Any) -> Value:
    return x.tracer.value(x.tracer.builder.node("Softmax", x.handle, axis=dim), x.dtype, x.sizes)


@word
def _log_softmax(x: Value, dim: int, **_: Any) -> Value:
    return x.tracer.value(x.tracer.builder.node("LogSoftmax", x.handle, axis=dim), x.dtype, x.sizes)


@word
def _argmax(x: Value, dim: int, keepdim: bool = False) -> Value:
    if x.dtype == BOOLEAN:
        x = _to(x, INTEGER)
    handle = x.tracer.builder.node("ArgMax", x.handle, axis=axis_of(x, dim), keepdims=int(keepdim))
    return x.tracer.value(handle, INTEGER, _without(x, dim % x.dim(), keepdim))


@word
def _amax(x: Value, dim: int, keepdim: bool = False) -> Value:
    axis = x.tracer.builder.integers(axis_of(x, dim))
    handle = x.tracer.builder.node("ReduceMax", x.handle, axis, keepdims=int(keepdim))
    return x.tracer.value(handle, x.dtype, _without(x, dim % x.dim(), keepdim))


@word
def _max(x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _amax(x, dim, keepdim), _argmax(x, dim, keepdim)


@word
def _sum(x: Value, dim: int, keepdim: bool = False, dtype: Any = None) -> Value:
    x = _to(x, INTEGER) if x.dtype == BOOLEAN else x
    axis = x.tracer.builder.integers(axis_of(x, dim))
    handle = x.tracer.builder.node("ReduceSum", x.handle, axis, keepdims=int(keepdim))
    return x.tracer.value(handle, x.dtype, _without(x, dim % x.dim(), keepdim))


@word
def _topk(x: Value, k: int, dim: int = -1) -> tuple[Value, Value]:
    sizes = x.sizes
    sizes[dim] = k
    builder = x.tracer.builder
    values, ids = builder.node("TopK", x.handle, builder.integers(k), outputs=2, axis=dim)
    return x.tracer.value(values, x.dtype, sizes), x.tracer.value(ids, INTEGER, sizes)


# --- products --------------------------------------------------------------------------------------------------------


@word
def _matmul(left: Any, right: Any) -> Value:
    tracer = tracer_of(left, right)
    assert tracer is not None
    a, b = lifted(tracer, left), lifted(tracer, right)
    sizes = broadcast(a.sizes[:-2], b.sizes[:-2])
    return tracer.value(tracer.builder.node("MatMul", a.handle, b.handle), FLOAT, [*sizes, a.sizes[-2], b.sizes[-1]])


@word
def _linear(x: Value, weight: Tensor, bias: Tensor | None = None) -> Value:
    return x.tracer.value(x.tracer.builder.linear(x.handle, weight, bias), FLOAT, [*x.sizes[:-1], weight.shape[0]])


@word
def _layer_norm(x: Value, shape: Any, weight: Tensor, bias: Tensor | None, eps: Any = 1e-5) -> Value:
    base, added = (x.handle, None) if x.summands is None else (one.handle for one in x.summands)
    return x.tracer.value(x.tracer.builder.norm(base, weight, bias, eps, added), FLOAT, x.sizes)


@word
def _rms_norm(x: Value, shape: Any, weight: Tensor, eps: Any = None) -> Value:
    return _layer_norm(x, shape, weight, None, eps)


@word
def _embedding(ids: Any, table: Any, *_: Any, **__: Any) -> Value:
    tracer = tracer_of(ids, table)
    assert tracer is not None
    ids, rows = lifted(tracer, ids), lifted(tracer, table)
    handle = tracer.builder.node("Gather", rows.handle, ids.handle, axis=0)
    found = tracer.value(handle, rows.dtype, [*ids.sizes, *rows.sizes[1:]])
    if isinstance(table, Tensor):
        found.looked_up = (table, ids)
    return found
