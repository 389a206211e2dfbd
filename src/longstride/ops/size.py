"""Lengths that are known only when a graph runs: what shapes of traced values hold in place of integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from longstride.ops.graph_builder import GraphBuilder, Handle


class TraceError(Exception):
    """A program asked for something that a graph cannot know or do while it is being recorded."""


class Size:
    """One length, as a value [1] int64 of the graph that is made when somebody needs it."""

    def __init__(self, builder: GraphBuilder, make: Callable[[], Handle], most: int | None = None) -> None:
        self._builder, self._make, self.most = builder, make, most
        self._made: Handle | None = None

    @property
    def handle(self) -> Handle:
        """[1] int64 in the graph"""
        if self._made is None:
            self._made = self._make()
        return self._made

    def _with(self, kind: str, other: int | Size, reverse: bool = False) -> Size:
        def make() -> Handle:
            right = other.handle if isinstance(other, Size) else self._builder.integers(other)
            return self._builder.node(kind, *((right, self.handle) if reverse else (self.handle, right)))

        return Size(self._builder, make)

    def __add__(self, other: int | Size) -> Size:
        return self if isinstance(other, int) and other == 0 else self._with("Add", other)

    def __radd__(self, other: int | Size) -> Size:
        return self + other

    def __sub__(self, other: int | Size) -> Size:
        return self if isinstance(other, int) and other == 0 else self._with("Sub", other)

    def __rsub__(self, other: int | Size) -> Size:
        return self._with("Sub", other, reverse=True)

    def __mul__(self, other: int | Size) -> Size:
        return self if isinstance(other, int) and other == 1 else self._with("Mul", other)

    def __rmul__(self, other: int | Size) -> Size:
        return self * other

    def __floordiv__(self, other: int | Size) -> Size:
        return self if isinstance(other, int) and other == 1 else self._with("Div", other)

    def _unknown(self, *_: Any) -> Any:
        raise TraceError(
            "a program that is traced may not depend on the number itself, which differs from call to call"
        )

    __bool__ = __index__ = __int__ = __lt__ = __le__ = __gt__ = __ge__ = _unknown


Length = int
"""The length of a dimension. While a graph is recorded a :class:`Size` may stand for it, which adds and multiplies like
one."""


def handle_of(builder: GraphBuilder, length: Any) -> Handle:
    """[1] int64"""
    return length.handle if isinstance(length, Size) else builder.integers(length)


def joined(builder: GraphBuilder, lengths: Sequence[Any]) -> Handle:
    """[n] int64: a whole shape"""
    if all(isinstance(length, int) for length in lengths):
        return builder.integers(*(int(length) for length in lengths))
    return builder.node("Concat", *(handle_of(builder, length) for length in lengths), axis=0)
