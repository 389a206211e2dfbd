"""A drafter may learn the verifier's distribution, not its output alone: their distance is in the loss."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from longstride.contract import EOS, PAD, Batch, SpecialIds
from longstride.systems.draft_verify.kept import reserved_ids
from longstride.systems.draft_verify.model import Drafter
from longstride.systems.draft_verify.objective import (
    Distance,
    DrafterObjective,
    DrafterObjectiveOptions,
    DrafterWithVerifier,
    columns_of,
    verifier_probabilities,
)
from longstride.systems.draft_verify.options import DrafterOptions
from tests.models import random_source, tiny_model

OPTIONS = DrafterObjectiveOptions(label_smoothing=0.0, glance_first=0.0, glance_last=0.0, blocks=2)


@pytest.fixture
def built() -> DrafterWithVerifier:
    verifier = tiny_model(1, torch.float32)
    torch.manual_seed(0)
    shape = DrafterOptions(
        vocabulary=11, block=3, width=16, feed_forward=16, heads=2, encoder="shared", verifier_width=16, longest=64,
        decoder_layers=1, link=4, dropout=0.0,
    )  # fmt: skip
    return DrafterWithVerifier(verifier, Drafter(shape)).train()


@pytest.fixture
def batch() -> Batch:
    source, target = random_source(5, 6, seed=1), random_source(5, 9, seed=2)
    return Batch(source.ids, target.ids, source.lengths, target.lengths, torch.arange(5))


def test_probabilities_are_the_verifiers_after_the_tokens_before(built: DrafterWithVerifier, batch: Batch) -> None:
    cuts = torch.stack([torch.zeros_like(batch.target_lengths), batch.target_lengths - 1], dim=1)
    memory = built.model.encode(batch.source, None)
    found = verifier_probabilities(built, {"target": batch.target}, columns_of(cuts, 3), None, memory)
    start = built.model.special.start
    for row in range(5):
        for place, cut in enumerate(cuts[row].tolist()):
            prefix = torch.tensor([[start, *batch.target[row, :cut].tolist()]])
            logits = built.model.logits(built.model.decode(prefix, memory[row : row + 1], None)[:, -1])
            assert torch.allclose(found[2 * row + place, 0], logits[0].softmax(-1), atol=1e-5)


@pytest.mark.parametrize(
    "special",
    [SpecialIds(start=EOS, mask=None), SpecialIds(start=PAD, mask=None), SpecialIds(unk=None, mask=None)],
    ids=str,
)
def test_an_id_that_is_several_special_ones_counts_once(special: SpecialIds, batch: Batch) -> None:
    """All ids are kept, so that the shares of own ones sum up to one, and EOS has that of EOS."""
    verifier = tiny_model(1, special=special)
    shared = len({*reserved_ids(special)})
    shape = DrafterOptions(
        vocabulary=11, kept=11 - shared + 5, block=3, width=16, feed_forward=16, heads=2, encoder="shared",
        verifier_width=16, longest=64, decoder_layers=1, special=special,
    )  # fmt: skip
    built = DrafterWithVerifier(verifier, Drafter(shape))
    memory = verifier.encode(batch.source, None)
    columns = columns_of(torch.zeros_like(batch.target_lengths)[:, None], 1)
    found = verifier_probabilities(built, {"target": batch.target}, columns, None, memory)[:, 0]
    start = torch.full((5, 1), special.start)
    expected = verifier.logits(verifier.decode(start, memory, None)[:, 0]).float().softmax(-1)
    assert torch.allclose(found.sum(-1), torch.ones(5), atol=1e-6)
    assert torch.allclose(found[:, EOS], expected[:, special.eos], atol=1e-6)


def test_the_distance_is_none_between_equals_and_one_between_strangers() -> None:
    logits = torch.tensor([[[100.0, 0.0, 0.0]]])
    same, other = torch.tensor([[[1.0, 0.0, 0.0]]]), torch.tensor([[[0.0, 0.5, 0.5]]])
    counted = torch.ones(1, 1)
    assert Distance()(logits, same, counted).item() == pytest.approx(0)
    assert Distance()(logits, other, counted).item() == pytest.approx(1)


def test_the_share_mixes_both_and_is_off_unless_asked_for(built: DrafterWithVerifier, batch: Batch) -> None:
    def loss(share: float) -> torch.Tensor:
        objective = DrafterObjective(replace(OPTIONS, distance=share))
        prepared = objective.prepare(batch, torch.Generator().manual_seed(3))
        return objective.loss(built, prepared).total

    assert torch.allclose(loss(0.5), 0.5 * (loss(0.0) + loss(1.0)))
    assert 0 < loss(1.0) <= int(batch.target_lengths.sum())
    loss(1.0).backward()
    assert any(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in built.drafter.parameters())
    assert all(weight.grad is None for weight in built.model.parameters())
    built.eval()
    assert loss(0.9) == loss(0.0)  # validation is by the target
