"""What a graph is built with: ONNX operators by name, and the few blocks that a backend carries out in its own way.

Each backend has a builder of its own; the tracer (longstride.ops.trace) calls it while a program runs. This file knows
neither, nor the package onnx: operators are names, and a handle is whatever the backend takes for a value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Handle = Any
"""A value of a graph, as its builder knows it."""

Body = Callable[..., Sequence[Handle]]
"""(values) -> values"""

HIDDEN = -1e30
"""Added to the score of what may not be seen. Finite: what is hidden everywhere must not become a NaN."""


DOUBLE = 11
"""How ONNX numbers float64."""


class GraphBuilder(ABC):
    """Builds one graph."""

    @abstractmethod
    def node(self, kind: str, *inputs: Handle, outputs: int = 1, **attributes: Any) -> Any:
        """One ONNX operator: its value, or a tuple of them where it has several outputs."""

    @abstractmethod
    def constant(self, tensor: Tensor) -> Handle:
        """A value that is always the same."""

    @abstractmethod
    def linear(self, x: Handle, weight: Tensor, bias: Tensor | None = None) -> Handle:
        """[..., inputs] times weight [outputs, inputs] -> [..., outputs], in the runner's precision"""

    @abstractmethod
    def norm(self, x: Handle, weight: Tensor, bias: Tensor | None, eps: float, added: Handle | None = None) -> Handle:
        """Layer norm of x [..., width], or of x + added [rows, step, width]; without a bias, by the root mean square"""

    @abstractmethod
    def attend(self, queries: Handle, keys: Handle, values: Handle, mask: Handle, heads: int) -> Handle:
        """[rows, step, width] over keys and values [rows, heads, seen, head] (or [rows, seen, width])

        mask [rows or 1, heads or 1, step, seen] is added to the scores -> [rows, step, width]
        """

    @abstractmethod
    def write(self, state: Handle, new: Handle, start: Handle) -> Handle:
        """[rows, heads, slots, head] with new [rows, heads, step, head] written from each row's own start [rows]"""

    def assign(self, state: Handle, new: Handle) -> Handle:
        """The new value of a state"""
        return self.node("Identity", new)

    def append(self, state: Handle, new: Handle, start: Handle) -> Handle:
        """[rows, columns] with new [rows, step] written from each row's own start [rows]"""
        wide = (self.column(one) for one in (state, new))
        return self.node("Squeeze", self.node("TensorScatter", *wide, start, axis=1), self.integers(-1))

    def accumulate(self, state: Handle, new: Handle) -> Handle:
        """[rows] in float64, plus the sum of new [rows, step]"""
        gained = self.node("ReduceSum", self.node("Cast", new, to=DOUBLE), self.integers(1), keepdims=0)
        return self.node("Add", state, gained)

    @abstractmethod
    def in_portions(
        self, values: Sequence[Handle], most: int, body: Body, kinds: Sequence[torch.dtype]
    ) -> list[Handle]:
        """What `body` makes of values that all have as many rows [n, ...], at least one, a portion after the other.

        It is given `most` rows of each at a time, or fewer, and gives values of these `kinds` with as many rows, which
        are put together again: what it makes of a row may depend on that row alone. For what would be too large, or too
        far from the processor, if all of it existed at once.
        """

    # --- said with the above -----------------------------------------------------------------------------------------

    def integers(self, *numbers: int) -> Handle:
        """[n] int64"""
        return self.constant(torch.tensor(numbers, dtype=torch.int64))

    def integer(self, number: int) -> Handle:
        """[] int64"""
        return self.constant(torch.tensor(number, dtype=torch.int64))

    def size(self, x: Handle, axis: int) -> Handle:
        """[1] the length of a dimension"""
        return self.node("Shape", x, start=axis, end=axis + 1)

    def scalar(self, x: Handle) -> Handle:
        """[1] -> []"""
        return self.node("Squeeze", x, self.integers(0))

    def arange(self, size: Handle) -> Handle:
        """[1] a length -> 0, 1, ..."""
        return self.node("Range", self.integer(0), self.scalar(size), self.integer(1))

    def look_up(self, table: Tensor, ids: Handle) -> Handle:
        """[...] integers -> [..., width] rows of a table [n, width]"""
        return self.node("Gather", self.constant(table), ids, axis=0)

    def listed(self, x: Handle, weight: Tensor, ids: Handle) -> Handle:
        """See :func:`longstride.ops.listed`."""
        rows = self.look_up(weight, ids)
        # In this order the larger of the two is read as it lies.
        made = self.node("MatMul", rows, self.node("Transpose", x, perm=[0, 2, 1]))
        return self.node("Transpose", made, perm=[0, 2, 1])

    def column(self, x: Handle) -> Handle:
        """[...] -> [..., 1]"""
        return self.node("Unsqueeze", x, self.integers(-1))

    def split_heads(self, x: Handle, heads: int) -> Handle:
        """[rows, length, width] -> [rows, heads, length, head]"""
        return self.node("Transpose", self.node("Reshape", x, self.integers(0, 0, heads, -1)), perm=[0, 2, 1, 3])

    def cut(self, x: Handle, first: Handle, last: Handle, axis: int) -> Handle:
        """The slice from `first` to `last` ([1], exclusive) of one dimension"""
        return self.node("Slice", x, first, last, self.integers(axis))

    def additive(self, visible: Handle) -> Handle:
        """Booleans -> 0 where visible, very low elsewhere"""
        return self.node("Where", visible, self.constant(torch.zeros(())), self.constant(torch.tensor(HIDDEN)))

    def best(self, logits: Handle, forbidden: Handle, vocabulary: int) -> Handle:
        """[rows, step, vocabulary] -> [rows, step] the largest not among the `forbidden` ids [n]; the first of equals

        The largest of every stretch is found first, which takes vector instructions, and then the largest within it.
        """
        allowed = self._allowed(logits, forbidden, vocabulary)
        stretch = next((size for size in range(256, 31, -1) if vocabulary % size == 0), 0)
        if not stretch:
            return self.node("ArgMax", allowed, axis=-1, keepdims=0)
        stretches = self.node("Reshape", allowed, self.integers(0, 0, vocabulary // stretch, stretch))
        largest = self.node("ReduceMax", stretches, self.integers(-1), keepdims=0)
        which = self.node("ArgMax", largest, axis=-1, keepdims=0)
        there = self.node("GatherND", stretches, self.column(which), batch_dims=2)
        within = self.node("ArgMax", there, axis=-1, keepdims=0)
        return self.node("Add", self.node("Mul", which, self.integer(stretch)), within)

    def largest_allowed(self, logits: Handle, forbidden: Handle, count: int, vocabulary: int) -> tuple[Handle, Handle]:
        """[..., vocabulary] -> the `count` largest not among the `forbidden` ids [n], and which they are"""
        found: tuple[Handle, Handle] = self.node(
            "TopK", self._allowed(logits, forbidden, vocabulary), self.integers(count), outputs=2, axis=-1
        )
        return found

    def _allowed(self, logits: Handle, forbidden: Handle, vocabulary: int) -> Handle:
        """Logits with -inf for what is forbidden"""
        never = self.node("Expand", self.constant(torch.tensor(float("-inf"))), self.node("Shape", forbidden))
        bias = self.node("ScatterElements", self.constant(torch.zeros(vocabulary)), forbidden, never, axis=0)
        return self.node("Add", logits, bias)

    def move(self, state: Handle, slots: Handle, start: Handle) -> Handle | None:
        """See :func:`longstride.ops.move_slots`; None: its operations are traced one by one."""
        return None

    def link_steps(
        self, before: Tensor, earlier: Handle, factors: Handle, after: Tensor, ids: Handle, values: Handle
    ) -> Handle:
        """For each of the candidates `earlier` [rows, block, n] of the slot before, which of a slot's own follows best.

        Tables before and after [vocabulary, rank], factors [rows, block, rank], own candidates ids [rows, block, n] and
        their values [rows, block, n] -> places among these [rows, block, n]
        """
        left = self.node("Mul", self.look_up(before, earlier), self.node("Unsqueeze", factors, self.integers(2)))
        right = self.node("Transpose", self.look_up(after, ids), perm=[0, 1, 3, 2])
        scores = self.node("Add", self.node("MatMul", left, right), self.node("Unsqueeze", values, self.integers(2)))
        return self.node("ArgMax", scores, axis=-1, keepdims=0)

    def draft_tree(
        self, values: Handle, ids: Handle, newest: Handle, nodes: int, pairs: tuple[Tensor, Handle, Tensor] | None
    ) -> tuple[Handle, Handle] | None:
        """See :func:`longstride.ops.draft_tree.best_tree`; None: its operations are traced one by one."""
        return None
