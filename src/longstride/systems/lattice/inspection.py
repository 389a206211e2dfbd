"""A look into decoding: what the search changed (Figure 2), and how long each stage takes (Figure 4).

The paper ranks words before the search "using edge scores only" and says no more. Here a word is ranked among the
candidates of its column by the best edge that leads to it from any candidate before, which is what a choice made
without search could go by; or by what the candidates were chosen by.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from longstride.contract import Limits, Source
from longstride.systems.lattice.decoder import LatticeDecoder
from longstride.systems.lattice.pipeline import STAGES
from longstride.systems.lattice.window import Lattice


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
