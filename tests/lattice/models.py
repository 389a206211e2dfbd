"""Tiny random scorers and candidates made by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from longstride.contract import PAD
from longstride.runtime.eager import EagerRunner
from longstride.search.lengths import LengthRegression
from longstride.systems.lattice.candidates import Candidates
from longstride.systems.lattice.decoder import LatticeDecoder
from longstride.systems.lattice.model import Scorer, ScorerOptions
from longstride.systems.lattice.pipeline import LatticeOptions
from tests.models import seeded, tiny_options

VOCABULARY = 11


def tiny_scorer(seed: int = 0, dtype: torch.dtype = torch.float64, **changes: object) -> Scorer:
    settings = {**vars(tiny_options()), "decoder_layers": 2, **changes}
    with seeded(seed):
        model = Scorer(ScorerOptions(**settings))  # type: ignore[arg-type]
        with torch.no_grad():
            for weight in model.parameters():
                weight.normal_(0, 0.5)
    return model.to(dtype).eval().requires_grad_(False)


class FakeSource:
    """Words that depend on the source and the column and nothing else; a share of the columns has none (`missing`)."""

    def __init__(self, vocabulary: int = VOCABULARY, missing: float = 0.0) -> None:
        self.vocabulary = vocabulary
        self.missing = missing

    def candidates(self, source: Tensor, lengths: Tensor, columns: int, k: int) -> Candidates:
        rows = []
        for ids, length in zip(source.tolist(), lengths.tolist(), strict=True):
            seed = hash(tuple(ids[:length]))
            rows.append([self._column(seed, column, k) for column in range(columns)])
        ids = torch.tensor([[ids for ids, _ in row] for row in rows], device=source.device)
        scores = torch.tensor([[scores for _, scores in row] for row in rows], device=source.device)
        return Candidates(ids, scores)

    def _column(self, seed: int, column: int, k: int) -> tuple[list[int], list[float]]:
        rng = torch.Generator().manual_seed((seed * 131 + column) % (1 << 31))
        words = (torch.randperm(self.vocabulary - 5, generator=rng) + 5).tolist()[:k]
        left = int(torch.rand(1, generator=rng) < self.missing)
        words = words[: 0 if left else k]
        scores = [-float(place) for place in range(len(words))]
        return words + [PAD] * (k - len(words)), scores + [-float("inf")] * (k - len(words))


def decoder(
    model: Scorer, source: object | None = None, slope: float = 1.0, intercept: float = 0.0, **options: object
) -> LatticeDecoder:
    """Over candidates made by hand, unless the model is to propose its own (construction)."""
    runner = EagerRunner("cpu", "fp64")
    settings = {"candidates": 4, **options}
    chosen = LatticeOptions(**settings)  # type: ignore[arg-type]
    proposing: Any = None if chosen.construction == "model" else source or FakeSource()
    return LatticeDecoder(model, proposing, LengthRegression(slope, intercept), runner, chosen)
