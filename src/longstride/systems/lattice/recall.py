"""How many of the words of a reference a candidate lattice holds, by K: the paper's Figure 1. Knows no scorer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from longstride.systems.lattice.candidates import CandidateSource
from longstride.text.binarized import BinarizedCorpus

ENTRIES = 4_000_000
"""Source words times places proposed for at a time, times forty: bounds the memory."""


def recall(
    source: CandidateSource,
    corpus: BinarizedCorpus,
    sizes: Sequence[int],
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[int, float]:
    """For each K, the share of target words (EOS is none) that are among the K candidates of their very place."""
    order = np.lexsort((corpus.source.lengths, corpus.target.lengths))
    widest = max(sizes)
    held = torch.zeros(widest, dtype=torch.int64, device=device)
    done = words = 0
    while done < len(order):
        longest = int(corpus.target.lengths[order[min(done + 255, len(order) - 1)]])
        rows = order[done : done + max(1, min(256, ENTRIES // (40 * longest * longest)))]
        ids, lengths = corpus.source.padded(rows)
        targets, target_lengths = corpus.target.padded(rows)
        columns = targets.shape[1] - 1
        place = torch.from_numpy(targets[:, :columns]).to(device)
        inside = torch.arange(columns, device=device) < torch.from_numpy(target_lengths - 1).to(device)[:, None]
        found = source.candidates(
            torch.from_numpy(ids).to(device), torch.from_numpy(lengths).to(device), columns, widest
        )
        held += ((found.ids == place[:, :, None]) & inside[:, :, None]).sum((0, 1))
        words += int((target_lengths - 1).sum())
        done += len(rows)
        progress(done, len(order))
    within = held.cumsum(0).tolist()
    return {size: within[size - 1] / max(words, 1) for size in sizes}
