"""A lattice's stages by Triton kernels, which are imported at the first call.

Which of them are used says the table of kernels that is in force (longstride.ops.kernels); what they must equal is the
stages' tensor code: `tables`, `scoring`, and `window` with `search` (compared in tests/lattice).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from longstride.contract import EOS, PAD, START, SpecialIds
from longstride.search.lengths import Window
from longstride.systems.lattice.candidates import Candidates

MAX_CANDIDATES = 128
"""The largest K whose edges of a column fit into one program's registers, for `best_paths`."""


def know(special: SpecialIds) -> bool:
    """Whether a vocabulary has the ids that kernels were written for: our own."""
    return (special.pad, special.start, special.eos) == (PAD, START, EOS)


def _launch(file: str, name: str, where: Tensor, *arguments: Any) -> Any:
    kernel = getattr(import_module(f"longstride.ops.cuda.lattice_{file}"), name)
    with torch.cuda.device_of(where):  # type: ignore[no-untyped-call]  # Triton launches on the current one
        return kernel(*arguments)


def proposed(source: Tensor, lengths: Tensor, *arguments: Any) -> Candidates:
    """What `Tables.candidates` and then `usable` give; arguments as of `ops.cuda.lattice_candidates.proposed`."""
    source = source if source.stride(1) == 1 else source.contiguous()
    return Candidates(*_launch("candidates", "proposed", source, source, lengths, *arguments))


def begun(words: Tensor, tokens: Tensor, scale: float, places: tuple[Tensor, int]) -> Tensor:
    """What the head's first layer reads, [rows, columns + (columns - 1) * K, width]: START in every slot, then words
    [rows, columns, K] in the slots after theirs. places: a table of positions, and which row is position 0's."""
    found: Tensor = _launch("edges", "begun", words, words.contiguous(), tokens, scale, *places)
    return found


def attended_to_two(packed: Tensor, words: Tensor, heads: int) -> Tensor:
    """Mixed values [rows, slots, width] of these slots' queries, keys and values, packed [rows, slots, 3 * width]."""
    found: Tensor = _launch("edges", "attended_to_two", packed, packed.contiguous(), *words.shape[1:], heads)
    return found


def room_for_shares(words: Tensor) -> tuple[Tensor, Tensor]:
    """What :func:`shares` writes for words [rows, columns, K], portion by portion: of column 0 [rows, K + 1], and of
    edges [rows, columns - 1, K, K + 1]."""
    first, edges = _launch("edges", "room_for_shares", words, words)
    return first, edges


def shares(logits: Tensor, begun: int, words: Tensor, first: Tensor, edges: Tensor) -> None:
    """Log-probabilities of words [rows, columns, K] and EOS by logits [some, vocabulary] of some slots: those from
    `begun` on, the rows' one after the other."""
    _launch("edges", "shares", logits, logits, begun, words.contiguous(), first, edges)


def best_paths(first: Tensor, edges: Tensor, words: Tensor, window: Window, ends: Tensor | None) -> Tensor:
    """[rows, 1, 3 + columns] what `pipeline.packed` says of the best paths.

    first [rows, K + 1] and edges [rows, columns - 1, K, K + 1] in float32; words [rows, columns, K]; `ends`, as a
    lattice has them.
    """
    shortest, longest = window.shortest, window.longest
    if shortest.stride() != longest.stride():
        shortest, longest = shortest.contiguous(), longest.contiguous()
    found: Tensor = _launch("paths", "best_paths", words, first, edges, words.contiguous(), shortest, longest, ends)
    return found[:, None]
