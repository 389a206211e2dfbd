"""Who may look at whom, as boolean masks: True is visible."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from longstride import ops
from longstride.contract import Prepared

Rule = Callable[[Tensor, Tensor], Tensor]
"""(query slots [rows, width], key slots [span]) -> visible [rows, width, span]; fixed when a program is built."""


def causal(query_slots: Tensor, key_slots: Tensor) -> Tensor:
    """A slot sees itself and everything before it."""
    return key_slots <= query_slots[..., None]


def real(lengths: Tensor, longest: int) -> Tensor:
    """[rows] lengths -> [rows, longest]: True on real tokens.

    The first column is always visible: a softmax over nothing is not a number, and an empty slot of a table must not
    produce one.
    """
    return ops.arange(longest, lengths) < lengths[:, None].clamp(min=1)


def of_sources(prepared: Prepared) -> Tensor | None:
    """[rows, longest source]: True on a batch's real source tokens; None where all are, which is faster."""
    source, lengths = prepared.tensors["source"], prepared.tensors["source_lengths"]
    return real(lengths, source.shape[1]) if prepared.source_padded else None


def of_targets(prepared: Prepared) -> Tensor:
    """[rows, longest target]: True on a batch's real target tokens, whatever ids stand beyond them."""
    return real(prepared.tensors["target_lengths"], prepared.tensors["target"].shape[1])
