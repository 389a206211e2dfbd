"""Keys and values of past slots, with each row at its own length.

The cache belongs to a session, not to the model. What lies beyond a row's length is left-over and never seen: the mask
rule hides it, and the next write covers it. So rewinding is lowering a length, which the session keeps; nothing here
moves. Buffers start at zero and only finite values are ever written, because a masked NaN still leaks (0 * NaN).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ALIGNMENT = 16
"""Attention kernels want masks whose rows are so many elements long, and pad others anew in every layer."""


def aligned(columns: int) -> int:
    """Columns rounded up to what attention kernels want."""
    return -(-columns // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Memory:
    """What the decoder's cross-attention reads of the encoded sources: keys and values of every layer."""

    keys: Tensor
    """[layers, rows, heads, source, head]"""
    values: Tensor
    """[layers, rows, heads, source, head]"""
    visible: Tensor
    """[rows, source] bool"""
    states: Tensor | None = None
    """[rows, source, width] the encoder's output itself, where somebody else reads it too; tables do not keep it"""

    @staticmethod
    def empty(layers: int, rows: int, heads: int, source: int, head: int, like: Tensor) -> Memory:
        """A table of memory for `rows` sources that are not there yet."""
        shape = (layers, rows, heads, source, head)
        visible = torch.zeros(rows, source, dtype=torch.bool, device=like.device)
        visible[:, 0] = True
        return Memory(like.new_zeros(shape), like.new_zeros(shape), visible)

    def first(self, rows: int) -> Memory:
        """The first rows alone."""
        states = None if self.states is None else self.states[:rows]
        return Memory(self.keys[:, :rows], self.values[:, :rows], self.visible[:rows], states)

    def select(self, rows: Tensor) -> Memory:
        """Some rows alone."""
        return Memory(self.keys[:, rows], self.values[:, rows], self.visible[rows])

    def put(self, rows: Tensor, other: Memory) -> None:
        """Write another memory, no wider than this, into the given rows."""
        width = other.visible.shape[1]
        self.visible[rows] = False
        self.visible[rows, :width] = other.visible
        # Columns beyond `width` keep an earlier sentence's values: hidden, and finite.
        self.keys[:, rows, :, :width] = other.keys
        self.values[:, rows, :, :width] = other.values


class Cache:
    """Self-attention keys and values for a table of rows."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys = keys
        """[layers, rows, heads, longest, head]"""
        self.values = values

    @staticmethod
    def empty(layers: int, rows: int, heads: int, longest: int, head: int, like: Tensor) -> Cache:
        """Zeros, in the type and on the device of `like`."""
        shape = (layers, rows, heads, longest, head)
        return Cache(like.new_zeros(shape), like.new_zeros(shape))

    @property
    def longest(self) -> int:
        """How many slots a row has."""
        return self.keys.shape[3]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.keys.shape[1]

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Write [rows, heads, width, head] at each row's own slots [rows, width]."""
        index = slots[:, None, :, None].expand_as(keys)
        self.keys[layer].scatter_(2, index, keys)
        self.values[layer].scatter_(2, index, values)

    def reorder(self, parents: Tensor, span: int) -> None:
        """Row r becomes what row parents[r] was; only the first `span` slots need to survive."""
        self.keys = self.keys[:, :, :, :span].index_select(1, parents)
        self.values = self.values[:, :, :, :span].index_select(1, parents)

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self.keys = self.keys.index_select(1, rows)
        self.values = self.values.index_select(1, rows)

    def grow(self, longest: int) -> None:
        """Make room for at least `longest` slots."""
        missing = longest - self.longest
        if missing > 0:
            pad = (0, 0, 0, missing)
            self.keys = torch.nn.functional.pad(self.keys, pad)
            self.values = torch.nn.functional.pad(self.values, pad)
