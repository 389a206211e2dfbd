"""What the paper measures: the words a lattice holds (Figure 1), what the search changed (2), the stages' times (4).

The paper ranks words before the search "using edge scores only" and says no more. Here a word is ranked among the
candidates of its column by the best edge that leads to it from any candidate before, which is what a choice made
without search could go by; or by what the candidates were chosen by.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from longstride.contract import Limits, Source
from longstride.systems.lattice.candidates import CandidateSource
from longstride.systems.lattice.decoder import LatticeDecoder
from longstride.systems.lattice.pipeline import STAGES
from longstride.systems.lattice.window import Lattice
from longstride.text.binarized import BinarizedCorpus

ENTRIES = 4_000_000
"""Source words times places proposed for at a time, times forty: bounds the memory of `recall`."""


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


def ranks(lattice: Lattice, states: Tensor, by: Literal["edges", "candidates"] = "edges") -> Tensor:
    """[rows, columns] the rank, from 1, of the word that a path [rows, columns] chose; 0 where no word stands."""
    scores = lattice.log_scores
    words = scores.shape[2]
    if by == "edges":  # the best score that leads to each word: [rows, columns, K]
        columns = [lattice.first[:, None, :words], lattice.edges[..., :words].amax(dim=2)]
        if lattice.triples is not None:
            columns.append(lattice.triples[..., :words].amax(dim=(2, 3)))
        scores = torch.cat(columns, dim=1)
    chosen = scores.gather(2, states.clamp(max=words - 1)[..., None])
    return ((scores > chosen).sum(dim=-1) + 1).masked_fill(states >= words, 0)


def histogram(ranks: Tensor, candidates: int) -> list[int]:
    """How often each rank from 1 to `candidates` was chosen."""
    return torch.bincount(ranks.flatten(), minlength=candidates + 1)[1:].tolist()


@dataclass(frozen=True)
class StageTimes:
    """Microseconds of the stages of one batch, and how large it was."""

    encode: float
    candidates: float
    score: float
    search: float
    """up to the output's being read back"""
    source_length: int
    """of the longest sentence, EOS counted"""
    output_length: int
    """of the longest output, EOS counted"""


@torch.inference_mode()
def stage_times(
    decoder: LatticeDecoder,
    source: Source,
    limits: Limits | None = None,
    synchronize: Callable[[], None] = lambda: None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> StageTimes:
    """Decode a batch stage by stage, the device synchronised between them: for shares, not for latency."""

    def read() -> int:
        synchronize()
        return clock()

    pipeline = decoder.pipeline(limits or Limits())
    readings = [read()]
    for stage, found in zip(STAGES, pipeline.stages(pipeline.read(source)), strict=True):
        longest = int(found[:, 0, 0].max()) if stage == "search" else 0
        readings.append(read())
    spent = [(later - earlier) / 1000 for earlier, later in pairwise(readings)]
    return StageTimes(spent[0], spent[1], spent[2], spent[3], int(source.lengths.max()), longest)
