"""Weights as the machine reads them, kept once however many graphs read them.

Programs of one model read the same matrices: what is equal is told by its content, so that a model whose weights have
changed is never taken for what it was.
"""

from __future__ import annotations

import ctypes
import hashlib
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from longstride.runtime.native.library import library
from longstride.runtime.processor import this_processor

T = TypeVar("T")

LINE = 64
"""Bytes of memory that are fetched at a time."""

_KEPT: weakref.WeakValueDictionary[tuple[object, ...], object] = weakref.WeakValueDictionary()


class Held:
    """Numbers that stay where they are."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.address = tensor.data_ptr()


class Packed:
    """A matrix as products read it; given back when nobody reads it any more."""

    def __init__(self, weight: Tensor, bias: Tensor | None, precision: int) -> None:
        outputs, inputs = weight.shape
        found = library()
        pointers = [
            ctypes.cast(0 if tensor is None else tensor.data_ptr(), ctypes.POINTER(ctypes.c_float))
            for tensor in (weight, bias)
        ]
        self.address: int = found.pack_linear(*pointers, outputs, inputs, precision) or 0
        if not self.address:
            raise MemoryError("There is no memory left for a packed matrix.")
        # When the process ends, a thread may still be reading it; the system takes all memory back then.
        weakref.finalize(self, found.free_linear, self.address).atexit = False


def packed(weight: Tensor, bias: Tensor | None, precision: int) -> Packed:
    """A matrix [outputs, inputs] and what is added to each output, in 8 bits or in 32."""
    weight, bias = _plain(weight), None if bias is None else _plain(bias)
    key = ("packed", precision, _content(weight), None if bias is None else _content(bias))
    return _once(key, lambda: Packed(weight, bias, precision))


def by_rows(weight: Tensor, precision: int) -> Held:
    """A matrix [outputs, inputs] of which some rows are read at a time: in 32 bits as it is; in 8 a scale for each row,
    then rows of codes, filled up with zeros to a multiple of a line"""
    weight = _plain(weight)
    if precision != 8:
        return held(weight)
    scale = weight.abs().amax(dim=1).clamp(min=torch.finfo(torch.float32).tiny) / library().weight_levels()
    codes = (weight / scale[:, None]).round().to(torch.int8)
    codes = torch.nn.functional.pad(codes, (0, -codes.shape[1] % LINE))
    return held(torch.cat([one.contiguous().view(torch.uint8).flatten() for one in (scale, codes)]))


def of_norm(weight: Tensor, bias: Tensor) -> Held:
    """[2 * width] weights, then biases"""
    return held(torch.cat([_plain(weight), _plain(bias)]))


def held(tensor: Tensor) -> Held:
    """A constant."""
    tensor = tensor.detach().cpu().contiguous()
    return _once(("held", _content(tensor)), lambda: Held(tensor.clone()))


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().to(device="cpu", dtype=torch.float32).contiguous()


def _content(tensor: Tensor) -> tuple[object, ...]:
    numbers = tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)
    return (tensor.dtype, tuple(tensor.shape), _quickest_hash()(numbers.numpy().data).digest())


@cache
def _quickest_hash() -> Callable[..., Any]:
    """Where a processor has instructions for sha256 it takes 0.4 times as long as blake2b (Neoverse N1: 1.57 and 0.61
    GB a second), elsewhere 1.5 times."""
    return hashlib.sha256 if this_processor().flags & {"sha2", "sha_ni"} else hashlib.blake2b


def _once(key: tuple[object, ...], make: Callable[[], T]) -> T:
    found = _KEPT.get(key)
    if found is None:
        found = _KEPT[key] = make()
    return found  # type: ignore[return-value]  # it is what `make` made before
