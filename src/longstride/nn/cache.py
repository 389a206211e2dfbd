"""Keys and values of past slots, with each row at its own length.

The cache belongs to a session, not to the model. What lies beyond a row's length is left-over and never seen: the mask
rule hides it, and the next write covers it. So rewinding is lowering a length, which the session keeps; nothing here
moves. Buffers start at zero and only finite values are ever written, because a masked NaN still leaks (0 * NaN).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from longstride.ops import AttentionBias, Causal, LocalCausal, additive, within_reach


@dataclass(frozen=True)
class EncoderState:
    """What the decoder's cross-attention reads of the encoded sources: keys and values of every layer."""

    keys: Tensor
    """[layers, rows, heads, source, head]"""
    values: Tensor
    """[layers, rows, heads, source, head]"""
    visible: Tensor
    """[rows, source] bool"""
    states: Tensor | None = None
    """[rows, source, width] the encoder's output itself, where somebody else reads it too; tables do not keep it"""
    bias: Tensor | None = None
    """[rows, 1, 1, source] what attention adds to scores, 0 where visible and -inf elsewhere; tables alone keep it"""

    @staticmethod
    def empty(layers: int, rows: int, heads: int, source: int, head: int, like: Tensor) -> EncoderState:
        """A table of memory for `rows` sources that are not there yet."""
        shape = (layers, rows, heads, source, head)
        visible = torch.zeros(rows, source, dtype=torch.bool, device=like.device)
        visible[:, 0] = True
        keys, values = like.new_zeros(shape), like.new_zeros(shape)
        return EncoderState(keys, values, visible, bias=additive(visible[:, None, None], like))

    @property
    def mask(self) -> Tensor:
        """[rows, 1, 1, source] what attention adds to scores."""
        return additive(self.visible[:, None, None], self.keys) if self.bias is None else self.bias

    @property
    def buffers(self) -> list[Tensor]:
        """What :meth:`put` writes."""
        return [self.keys, self.values, self.visible, *([] if self.bias is None else [self.bias])]

    def first(self, rows: int) -> EncoderState:
        """The first rows alone."""
        states = None if self.states is None else self.states[:rows]
        bias = None if self.bias is None else self.bias[:rows]
        return EncoderState(self.keys[:, :rows], self.values[:, :rows], self.visible[:rows], states, bias)

    def select(self, rows: Tensor) -> EncoderState:
        """Some rows alone."""
        bias = None if self.bias is None else self.bias[rows]
        return EncoderState(self.keys[:, rows], self.values[:, rows], self.visible[rows], bias=bias)

    def put(self, rows: RowIndex, other: EncoderState) -> None:
        """Write another memory, no wider than this, into the given rows. Columns beyond it keep an earlier sentence's
        keys and values: hidden, and finite."""
        width = other.visible.shape[1]
        if _by_numpy(rows, self.keys, other.keys):
            keys, values, visible = (one.numpy() for one in self.buffers[:3])
            visible[rows, :width], visible[rows, width:] = other.visible.numpy(), False
            if self.bias is not None:
                self.bias.numpy()[rows] = np.where(visible[rows], np.float32(0), -np.inf)[:, None, None]
            keys[:, rows, :, :width], values[:, rows, :, :width] = other.keys.numpy(), other.values.numpy()
            return
        missing = self.visible.shape[1] - width
        shown = F.pad(other.visible, (0, missing)) if missing else other.visible
        self.visible[rows] = shown
        if self.bias is not None:
            self.bias[rows] = additive(shown[:, None, None], self.bias)
        self.keys[:, rows, :, :width], self.values[:, rows, :, :width] = other.keys, other.values


RowIndex = Tensor | NDArray[np.int64] | slice
"""Rows of a table, which on a processor numpy writes unless they are a tensor"""


def row_index(rows: Tensor, table: int, recorded: bool) -> RowIndex:
    """These rows of a table of so many, as they are written best.

    By numpy, where that can be: PyTorch shares even so small a copy out among its threads, which then wait busily for
    more (milliseconds) on cores that the next model call needs; and its calls are what a short sentence waits for. By a
    slice, where that is all: copying to rows that have to be looked up takes several times as long. What is recorded is
    PyTorch's.
    """
    if recorded:
        return rows
    return slice(None) if table == 1 else rows.numpy() if rows.device.type == "cpu" else rows


def put_rows(there: Tensor, rows: RowIndex, given: Tensor, dim: int = 0, of: RowIndex = slice(None)) -> None:
    """Rows of a tensor, counted along a dimension, become those `of` what is given (default: all of it)."""
    before = (slice(None),) * dim
    if _by_numpy(rows, there, given):
        there.numpy()[(*before, rows)] = given.numpy()[(*before, of)]
    else:
        there[(*before, rows)] = given[(*before, of)].to(there.dtype)


def _by_numpy(rows: RowIndex, *tensors: Tensor) -> bool:
    """It does not know bfloat16."""
    if isinstance(rows, Tensor):
        return False
    return all(one.device.type == "cpu" and one.dtype != torch.bfloat16 for one in tensors)


class Cache:
    """Self-attention keys and values for a table of rows."""

    indirection: Tensor | None = None
    """[rows, longest] int32: the row in which each slot of a row's past lies; None: its own. For the hypotheses of a
    beam, which share pasts: whoever sets it keeps it, and nothing is moved. A step still writes its own rows, no matter
    what their slots of it say here."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self._keys, self._values = keys, values
        self._both: Tensor | None = None
        self._biases: dict[tuple[int, int], Tensor] = {}  # span, local -> what each slot sees of it

    @staticmethod
    def empty(layers: int, rows: int, heads: int, longest: int, head: int, like: Tensor) -> Cache:
        """Zeros, in the type and on the device of `like`."""
        return Cache._of(like.new_zeros(2, layers, rows, heads, longest, head))

    @staticmethod
    def _of(both: Tensor) -> Cache:
        """Keys and values side by side in one tensor, which one write reaches."""
        cache = Cache(both[0], both[1])
        cache._both = both
        return cache

    @property
    def keys(self) -> Tensor:
        """[layers, rows, heads, longest, head]"""
        return self._keys

    @keys.setter
    def keys(self, keys: Tensor) -> None:
        self._keys, self._both = keys, None

    @property
    def values(self) -> Tensor:
        """[layers, rows, heads, longest, head]"""
        return self._values

    @values.setter
    def values(self, values: Tensor) -> None:
        self._values, self._both = values, None

    @property
    def buffers(self) -> list[Tensor]:
        """What :meth:`write` writes."""
        return [self.keys, self.values] if self._both is None else [self._both]

    @property
    def longest(self) -> int:
        """How many slots a row has."""
        return self.keys.shape[3]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.keys.shape[1]

    def causal(self, slots: Tensor, span: int, local: int = 0) -> AttentionBias:
        """Slots [rows, width], each row's side by side, of which each sees none but itself and earlier ones; `local`:
        back to the block of so many slots before its own."""
        table = partial(self.prepare, span, local)
        return LocalCausal(slots, table, local) if local else Causal(slots, table)

    def prepare(self, span: int, local: int = 0) -> Tensor:
        """[longest, span] what is added for every slot; who compiles or records asks for it beforehand."""
        if (span, local) not in self._biases:
            every = torch.arange(self.longest, device=self.keys.device)
            seen = every[:span] <= every[:, None]
            seen = seen & within_reach(every, every[:span], local) if local else seen
            self._biases[span, local] = additive(seen, self.keys)
        return self._biases[span, local]

    def shuffle(self, parents: Tensor, span: int) -> None:
        """Row r becomes what row parents[r] was, in place; slots from `span` on stay as they are."""
        for buffer in (self.keys[:, :, :, :span], self.values[:, :, :, :span]):
            buffer.copy_(buffer.index_select(1, parents))

    def move(self, there: list[int], here: list[int], slots: int) -> None:
        """Rows `there` become what rows `here` were, in place; only the first `slots` need to follow. On a processor.

        By numpy, which wakes no threads for so little, and as bytes, since it does not know every type.
        """
        for buffer in (self.keys, self.values):
            seen = buffer.view(torch.uint8).numpy()[:, :, :, :slots]
            seen[:, there] = seen[:, here]

    def follow(self, there: list[int], here: list[int], slots: list[list[int]], first: int) -> None:
        """Rows `there` get from slot `first` on what lies in these slots [row, slot] of rows `here`, in place. On a
        processor, as :meth:`move`."""
        row, at = np.array(here)[:, None], np.array(slots)
        new, places = np.array(there)[:, None], np.arange(first, first + at.shape[1])
        for buffer in (self.keys, self.values):
            seen = buffer.view(torch.uint8).numpy()
            seen[:, new, :, places] = seen[:, row, :, at]

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self.keys = self.keys.index_select(1, rows)
        self.values = self.values.index_select(1, rows)

    def grow(self, longest: int) -> None:
        """Make room for at least `longest` slots."""
        missing = longest - self.longest
        if missing > 0:
            pad = (0, 0, 0, missing)
            self.keys, self.values = F.pad(self.keys, pad), F.pad(self.values, pad)
            self._biases.clear()
