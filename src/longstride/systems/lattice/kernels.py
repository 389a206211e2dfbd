"""A lattice's stages by Triton kernels, which are imported at the first call.

Which of them a module uses is its `in_use`, set by `use`; what they must equal is the stages' tensor code: `tables`,
`scoring`, and `window` with `search` (compared in tests/lattice).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from longstride.contract import UNK
from longstride.nn.fused import Kernel
from longstride.search.lengths import Window
from longstride.systems.lattice.candidates import Candidates

MAX_CANDIDATES = 128
"""The largest K whose edges of a column fit into one program's registers, for `best_paths`."""


def named(*names: str) -> list[Kernel]:
    """Kernels by name, for the modules that can use them."""
    return [Kernel(name, (), _launches) for name in names]


def _launches(random: Callable[..., Tensor]) -> float:
    """A quick self-check, that Triton compiles and launches here at all."""
    device = random(1).device
    words, two = torch.full((1, 2, 1), UNK, device=device), torch.full((1,), 2, device=device)
    first, edges = torch.zeros(1, 2, device=device), torch.zeros(1, 1, 1, 2, device=device)
    return float(best_paths(first, edges, words, Window(two, two), None)[0, 0, 0] != 2)


def proposed(
    source: Tensor,
    lengths: Tensor,
    tables: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor],
    columns: int,
    k: int,
    shape: tuple[int, int, int],
    fixed: tuple[int, int],
    fallback: int | None,
) -> Candidates:
    """What `tables.Tables.candidates` and then `candidates.usable` give; arguments as of the kernels' own."""
    from longstride.systems.lattice import candidates_kernels

    with torch.cuda.device_of(source):  # type: ignore[no-untyped-call]  # Triton launches on the current one
        source = source if source.stride(1) == 1 else source.contiguous()
        ids, scores = candidates_kernels.proposed(source, lengths, tables, columns, k, shape, fixed, fallback)
    return Candidates(ids, scores)


def begun(words: Tensor, tokens: Tensor, scale: float, places: tuple[Tensor, int]) -> Tensor:
    """What the head's first layer reads, [rows, columns + (columns - 1) * K, width]: START in every slot, then words
    [rows, columns, K] in the slots after theirs. places: a table of positions, and which row is position 0's."""
    from longstride.systems.lattice import edges_kernels

    with torch.cuda.device_of(words):  # type: ignore[no-untyped-call]
        found: Tensor = edges_kernels.begun(words.contiguous(), tokens, scale, *places)
    return found


def attended_to_two(packed: Tensor, words: Tensor, heads: int) -> Tensor:
    """Mixed values [rows, slots, width] of these slots' queries, keys and values, packed [rows, slots, 3 * width]."""
    from longstride.systems.lattice import edges_kernels

    with torch.cuda.device_of(packed):  # type: ignore[no-untyped-call]
        found: Tensor = edges_kernels.attended_to_two(packed.contiguous(), words.shape[1], words.shape[2], heads)
    return found


def room_for_shares(words: Tensor) -> tuple[Tensor, Tensor]:
    """What :func:`shares` writes for words [rows, columns, K], portion by portion: of column 0 [rows, K + 1], and of
    edges [rows, columns - 1, K, K + 1]."""
    from longstride.systems.lattice import edges_kernels

    first, edges = edges_kernels.room_for_shares(words)
    return first, edges


def shares(logits: Tensor, begun: int, words: Tensor, first: Tensor, edges: Tensor) -> None:
    """Log-probabilities of words [rows, columns, K] and EOS by logits [some, vocabulary] of some slots: those from
    `begun` on, the rows' one after the other."""
    from longstride.systems.lattice import edges_kernels

    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
        edges_kernels.shares(logits, begun, words.contiguous(), first, edges)


def best_paths(first: Tensor, edges: Tensor, words: Tensor, window: Window, ends: Tensor | None) -> Tensor:
    """[rows, 1, 3 + columns] what `pipeline.packed` says of the best paths.

    first [rows, K + 1] and edges [rows, columns - 1, K, K + 1] in float32; words [rows, columns, K]; `ends`, as a
    lattice has them.
    """
    from longstride.systems.lattice import paths_kernels

    shortest, longest = window.shortest, window.longest
    if shortest.stride() != longest.stride():
        shortest, longest = shortest.contiguous(), longest.contiguous()
    with torch.cuda.device_of(words):  # type: ignore[no-untyped-call]
        found: Tensor = paths_kernels.best_paths(first, edges, words.contiguous(), shortest, longest, ends)
    return found[:, None]
