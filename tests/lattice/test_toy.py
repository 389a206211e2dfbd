"""A toy that unigrams cannot solve and edges can: learnt in seconds, searched exactly.

Every word has two forms. A translation repeats the source's words; the first is in the lower form, and the form changes
after every even word. The form of a word so depends on all words before it, but is plain from the one before it alone.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from longstride.contract import EOS, PAD, Batch, Source
from longstride.runtime.eager import EagerRunner
from longstride.search.lengths import LengthRegression
from longstride.systems.lattice.candidates import Candidates
from longstride.systems.lattice.decoder import LatticeDecoder
from longstride.systems.lattice.model import LatticeModel, Scorer, ScorerOptions
from longstride.systems.lattice.objective import LatticeObjective, LatticeObjectiveOptions
from longstride.systems.lattice.pipeline import LatticeOptions

WORDS = 10
FIRST = 5


class Forms:
    """Hand-made tables: for a place, the source word there and its neighbours, in both forms."""

    def candidates(self, source: Tensor, lengths: Tensor, columns: int, k: int) -> Candidates:
        assert k == 6
        width = source.shape[1]
        places = torch.arange(columns)[:, None] + torch.tensor([0, -1, 1])
        near = source[:, places.clamp(0, width - 1)]
        there = (places >= 0) & (places < (lengths - 1)[:, None, None])
        ids = torch.cat([near, near + WORDS], dim=-1)
        there = torch.cat([there, there], dim=-1)
        # The same word may be near twice; a column holds it once.
        again = (ids[..., None, :] == ids[..., None]).tril(-1).any(dim=-1)
        scores = torch.zeros(ids.shape).masked_fill(~there | again, -torch.inf)
        return Candidates(ids.masked_fill(scores == -torch.inf, PAD), scores)


def _pairs(rows: int, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    lengths = torch.randint(3, 9, (rows,), generator=rng)
    words = torch.randint(FIRST, FIRST + WORDS, (rows, 8), generator=rng)
    turns = (words % 2 == 0).long().cumsum(dim=1)
    upper = torch.nn.functional.pad(turns[:, :-1], (1, 0)) % 2
    columns = torch.arange(9)

    def ended(ids: Tensor) -> Tensor:
        ids = torch.nn.functional.pad(ids, (0, 1)).masked_fill(columns == lengths[:, None], EOS)
        return ids.masked_fill(columns > lengths[:, None], PAD)

    return ended(words), ended(words + WORDS * upper), lengths + 1


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        options = ScorerOptions(
            vocabulary=FIRST + 2 * WORDS, width=32, feed_forward=64, heads=4, encoder_layers=1, longest=32, dropout=0.0
        )
        model = LatticeModel(Scorer(options), torch.nn.Module()).train()
        objective = LatticeObjective(LatticeObjectiveOptions(label_smoothing=0.0))
        rng = torch.Generator().manual_seed(1)
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98))
        steps = 400
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = 5e-3 * min(1, step / 40) * (1 - step / steps)
            source, target, lengths = _pairs(64, rng)
            prepared = objective.prepare(Batch(source, target, lengths, lengths, torch.arange(64)), rng)
            loss = objective.loss(model, prepared).total / prepared.tokens
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.model.eval().requires_grad_(False)


def _right(scorer: Scorer, **options: object) -> float:
    source, target, lengths = _pairs(200, torch.Generator().manual_seed(2))
    settings = {"candidates": 6, **options}
    decoder = LatticeDecoder(
        scorer,
        Forms(),
        LengthRegression(),
        EagerRunner(),
        LatticeOptions(**settings),  # type: ignore[arg-type]
    )
    found = decoder.decode(Source(source, lengths)).tokens
    wanted = [row[: length - 1] for row, length in zip(target.tolist(), lengths.tolist(), strict=True)]
    return sum(one == other for one, other in zip(found, wanted, strict=True)) / len(wanted)


def test_the_lattice_learns_it(scorer):
    assert _right(scorer) > 0.95
    assert _right(scorer, search="scan") > 0.95
    assert _right(scorer, order=3) > 0.95


def test_neither_counts_nor_unigrams_would(scorer):
    """The score of a word alone cannot tell which form is due."""
    from longstride.systems.lattice.scoring import encode, unigrams

    source, target, lengths = _pairs(200, torch.Generator().manual_seed(2))
    alone = unigrams(scorer, encode(scorer, source, lengths, True), target.shape[1]).argmax(dim=-1)
    assert ((alone == target) | (target == PAD)).all(dim=1).float().mean() < 0.5
