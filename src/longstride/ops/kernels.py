"""Which kernel carries out an operation: a table, which a runner or a trainer puts in force; models never ask.

An operation is a plain function over PyTorch (:func:`operation` marks it). While a table is in force, the first of its
kernels that supports the arguments takes the function's place. Without a table, and so wherever graphs are traced, the
plain function is all there is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ParamSpec, TypeVar

import torch

TYPES = (torch.float32, torch.float16, torch.bfloat16)
"""The numbers that kernels for inference are written for."""
FIRST, WAITED = 1, 2
"""When a kernel lets the next one start: as its first act, or when its own wait is over. With the first, several wait
at a time and take room from those at work: products of 512 by 2048 took 3.7 us so, and 2.9 with the second, a norm and
a product in turns 3.7 and 3.6; attention and norms by themselves did not care."""

P = ParamSpec("P")
R = TypeVar("R")


def _always(*_: Any, **__: Any) -> bool:
    return True


@dataclass(frozen=True)
class Kernel:
    """One way to carry out one operation on one kind of device."""

    name: str
    """what leaves it out; several that are wanted together share one"""
    operation: str
    run: str | Callable[..., Any]
    """takes what the operation takes; "module:function" is imported from longstride.ops.cuda at the first call"""
    supports: Callable[..., bool] = _always
    """(what the operation takes) -> whether the kernel can do it"""
    worthwhile: Callable[..., bool] = _always
    """likewise -> whether it is better than PyTorch's way for so much of it"""
    condition: str = ""
    """both in words"""
    dtypes: tuple[torch.dtype, ...] = TYPES

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Carry it out."""
        if not isinstance(self.run, str):
            return self.run(*arguments, **named)
        launch = _launcher(self.run)
        with torch.cuda.device_of(arguments[0]):  # type: ignore[no-untyped-call]  # Triton launches on the current one
            return launch(*arguments, **named)


@cache
def _launcher(place: str) -> Callable[..., Any]:
    module, _, function = place.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"longstride.ops.cuda.{module}"), function)
    return found


class KernelTable:
    """Kernels for one kind of device, in order of preference."""

    def __init__(self, kernels: Iterable[Kernel], device: str = "cuda", overlap: int = 0) -> None:
        """`overlap`: whether kernels start while the one before them ends, and in which manner (ops.cuda.overlap)"""
        self.kernels = tuple(kernels)
        self.device, self.overlap = device, overlap
        self.unsupported: set[str] = set()
        """operations that some arguments had to be left to PyTorch for, because no kernel supports them"""
        self._of: dict[str, list[Kernel]] = {}
        for kernel in self.kernels:
            self._of.setdefault(kernel.operation, []).append(kernel)

    @property
    def names(self) -> frozenset[str]:
        """Of the kernels in it."""
        return frozenset(kernel.name for kernel in self.kernels)

    def find(self, operation: str, *arguments: Any, **named: Any) -> Kernel | None:
        """The kernel that carries an operation out on these arguments; None: PyTorch does."""
        kernels = self._of.get(operation)
        if kernels is None or arguments[0].device.type != self.device:
            return None
        supported = False
        for kernel in kernels:
            if kernel.supports(*arguments, **named):
                if kernel.worthwhile(*arguments, **named):
                    return kernel
                supported = True
        if not supported and self is not _training:  # compiled code is not to write anything here
            self.unsupported.add(operation)
        return None

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """For a person: operation, kernel, device, types and condition of each."""
        return [
            (
                kernel.operation,
                kernel.name,
                self.device,
                ", ".join(str(dtype).removeprefix("torch.") for dtype in kernel.dtypes),
                kernel.condition,
            )
            for kernel in self.kernels
        ]


class _InForce(threading.local):
    """The table of this thread, for inference."""

    table: KernelTable | None = None


_here = _InForce()
_training: KernelTable | None = None


def current() -> KernelTable | None:
    """The table in force."""
    table = _here.table
    return _training if table is None else table


def uses(name: str) -> bool:
    """Whether the table in force has a kernel of this name."""
    table = current()
    return table is not None and name in table.names


@contextmanager
def kernels_of(table: KernelTable | None) -> Iterator[None]:
    """Within it operations of this thread are carried out by the table's kernels; None: as they were."""
    before = _here.table
    _here.table = before if table is None else table
    try:
        yield
    finally:
        _here.table = before


def train_with(table: KernelTable | None) -> None:
    """Put a table in force for training, in all threads: compiled code knows it by its being a global of this file."""
    global _training
    _training = table


def operation(plain: Callable[P, R]) -> Callable[P, R]:
    """Mark PyTorch's definition of an operation: a kernel may take its place."""
    name = plain.__name__

    @wraps(plain)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        table = current()
        if table is not None:
            kernel = table.find(name, *arguments, **named)
            if kernel is not None:
                return kernel(*arguments, **named)  # type: ignore[no-any-return]
        return plain(*arguments, **named)

    return call


def why_not_here(device: torch.device, dtype: torch.dtype, test: Callable[[], str]) -> str:
    """What keeps a kernel from being used, in a few words, by place or by a test of it; empty where nothing does."""
    if device.type != "cuda":
        return f"it expects a CUDA device, found {device}"
    if dtype not in TYPES:
        return f"it expects fp32, fp16 or bf16, found {dtype}"
    if find_spec("triton") is None:
        return "it expects the package triton, found none"
    try:
        return test()
    except Exception as error:  # a compiler that fails in whatever way of its own
        return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
