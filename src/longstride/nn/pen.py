"""What graphs are drawn with: ONNX operators by name, and the few blocks that a runner may carry out in its own way.

Systems draw their programs with a pen; a runtime holds it. This file knows neither, nor the package onnx: operators are
names, and a value is whatever the runtime takes for one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Value = Any

Body = Callable[..., Sequence[Value]]
"""(values) -> values"""

HIDDEN = -1e30
"""Added to the score of what may not be seen. Finite: what is hidden everywhere must not become a NaN."""


class Pen(ABC):
    """Draws one graph."""

    @abstractmethod
    def node(self, kind: str, *inputs: Value, outputs: int = 1, **attributes: Any) -> Any:
        """One ONNX operator: its value, or a tuple of them where it has several outputs."""

    @abstractmethod
    def constant(self, tensor: Tensor) -> Value:
        """A value that is always the same."""

    @abstractmethod
    def linear(self, x: Value, weight: Tensor, bias: Tensor | None = None) -> Value:
        """[..., inputs] times weight [outputs, inputs] -> [..., outputs], in the runner's precision"""

    @abstractmethod
    def norm(self, x: Value, norm: nn.LayerNorm, added: Value | None = None) -> Value:
        """Layer norm of x [..., width], or of x + added [rows, step, width]"""

    @abstractmethod
    def attend(self, queries: Value, keys: Value, values: Value, mask: Value, heads: int) -> Value:
        """[rows, step, width] over keys and values [rows, heads, seen, head] (or [rows, seen, width])

        mask [rows or 1, 1, step, seen] is added to the scores -> [rows, step, width]
        """

    @abstractmethod
    def write(self, state: Value, new: Value, start: Value) -> Value:
        """[rows, heads, slots, head] with new [rows, heads, step, head] written from each row's own start [rows]"""

    @abstractmethod
    def in_portions(self, values: Sequence[Value], most: int, body: Body, kinds: Sequence[torch.dtype]) -> list[Value]:
        """What `body` makes of values that all have as many rows [n, ...], at least one, a portion after the other.

        It is given `most` rows of each at a time, or fewer, and gives values of these `kinds` with as many rows, which
        are put together again: what it makes of a row may depend on that row alone. For what would be too large, or too
        far from the processor, if all of it existed at once.
        """

    # --- said with the above -----------------------------------------------------------------------------------------

    def integers(self, *numbers: int) -> Value:
        """[n] int64"""
        return self.constant(torch.tensor(numbers, dtype=torch.int64))

    def integer(self, number: int) -> Value:
        """[] int64"""
        return self.constant(torch.tensor(number, dtype=torch.int64))

    def size(self, x: Value, axis: int) -> Value:
        """[1] the length of a dimension"""
        return self.node("Shape", x, start=axis, end=axis + 1)

    def scalar(self, x: Value) -> Value:
        """[1] -> []"""
        return self.node("Squeeze", x, self.integers(0))

    def arange(self, size: Value) -> Value:
        """[1] a length -> 0, 1, ..."""
        return self.node("Range", self.integer(0), self.scalar(size), self.integer(1))

    def look_up(self, table: Tensor, ids: Value) -> Value:
        """[...] integers -> [..., width] rows of a table [n, width]"""
        return self.node("Gather", self.constant(table), ids, axis=0)

    def column(self, x: Value) -> Value:
        """[...] -> [..., 1]"""
        return self.node("Unsqueeze", x, self.integers(-1))

    def split(self, x: Value, parts: int) -> Sequence[Value]:
        """[..., width] -> so many of [..., width / parts]"""
        found: Sequence[Value] = self.node("Split", x, outputs=parts, axis=-1, num_outputs=parts)
        return found

    def split_heads(self, x: Value, heads: int) -> Value:
        """[rows, length, width] -> [rows, heads, length, head]"""
        return self.node("Transpose", self.node("Reshape", x, self.integers(0, 0, heads, -1)), perm=[0, 2, 1, 3])

    def cut(self, x: Value, first: Value, last: Value, axis: int) -> Value:
        """The slice from `first` to `last` ([1], exclusive) of one dimension"""
        return self.node("Slice", x, first, last, self.integers(axis))

    def lengthen(self, x: Value, more: Value, axis: int) -> Value:
        """So many ([1]) zeros, or False, at the end of one dimension"""
        both = self.node("Concat", self.integers(0), more, axis=0)
        return self.node("Pad", x, both, "", self.integers(axis))

    def additive(self, visible: Value) -> Value:
        """Booleans -> 0 where visible, very low elsewhere"""
        return self.node("Where", visible, self.constant(torch.zeros(())), self.constant(torch.tensor(HIDDEN)))

    def activation(self, x: Value, kind: str) -> Value:
        """relu, gelu or silu"""
        if kind == "relu":
            return self.node("Relu", x)
        if kind == "gelu":
            return self.node("Gelu", x)
        return self.node("Mul", x, self.node("Sigmoid", x))

    def best(self, logits: Value, forbidden: Value, vocabulary: int) -> Value:
        """[rows, step, vocabulary] -> [rows, step] the largest not among the `forbidden` ids [n]; the first of equals

        The largest of every stretch is found first, which takes vector instructions, and then the largest within it.
        """
        never = self.node("Expand", self.constant(torch.tensor(float("-inf"))), self.node("Shape", forbidden))
        bias = self.node("ScatterElements", self.constant(torch.zeros(vocabulary)), forbidden, never, axis=0)
        allowed = self.node("Add", logits, bias)
        stretch = next((size for size in range(256, 31, -1) if vocabulary % size == 0), 0)
        if not stretch:
            return self.node("ArgMax", allowed, axis=-1, keepdims=0)
        stretches = self.node("Reshape", allowed, self.integers(0, 0, vocabulary // stretch, stretch))
        largest = self.node("ReduceMax", stretches, self.integers(-1), keepdims=0)
        which = self.node("ArgMax", largest, axis=-1, keepdims=0)
        there = self.node("GatherND", stretches, self.column(which), batch_dims=2)
        within = self.node("ArgMax", there, axis=-1, keepdims=0)
        return self.node("Add", self.node("Mul", which, self.integer(stretch)), within)

    def link_steps(
        self, before: Tensor, earlier: Value, factors: Value, after: Tensor, ids: Value, values: Value
    ) -> Value:
        """For each of the candidates `earlier` [rows, block, n] of the slot before, which of a slot's own follows best.

        Tables before and after [vocabulary, rank], factors [rows, block, rank], own candidates ids [rows, block, n] and
        their values [rows, block, n] -> places among these [rows, block, n]
        """
        left = self.node("Mul", self.look_up(before, earlier), self.node("Unsqueeze", factors, self.integers(2)))
        right = self.node("Transpose", self.look_up(after, ids), perm=[0, 1, 3, 2])
        scores = self.node("Add", self.node("MatMul", left, right), self.node("Unsqueeze", values, self.integers(2)))
        return self.node("ArgMax", scores, axis=-1, keepdims=0)
