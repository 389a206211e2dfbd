"""How long each stage takes, the device synchronised between them (the paper's Figure 4).

Synchronising makes the sum longer than a decode that runs through: for shares, not for latency.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch

from longstride.contract import Limits, Source
from longstride.systems.lattice.decoder import LatticeDecoder
from longstride.systems.lattice.pipeline import emitted

STAGES = ("encode", "candidates", "score", "search")


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
    """Decode a batch stage by stage with a stopwatch in between."""
    pipeline = decoder.pipeline(limits or Limits())
    readings: list[int] = []

    def read() -> None:
        synchronize()
        readings.append(clock())

    read()
    sentences = pipeline.read(source)
    encoded = pipeline.encode(sentences)
    read()
    candidates = pipeline.candidates(sentences, encoded)
    read()
    if pipeline.at_once:
        scores = pipeline.edges(encoded, candidates)
        read()
        lengths = pipeline.found(sentences, candidates, scores)[..., 0].tolist()
    else:
        lattice = pipeline.score(sentences, encoded, candidates)
        read()
        lengths = emitted(lattice, pipeline.search(lattice))[1].tolist()
    read()
    spent = [(later - earlier) / 1000 for earlier, later in pairwise(readings)]
    longest = max(row[0] for row in lengths)
    return StageTimes(spent[0], spent[1], spent[2], spent[3], int(source.lengths.max()), longest)
