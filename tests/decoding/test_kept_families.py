"""Drafters for other people's architectures: built by a recipe's plan, trained a little, decoded with."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from longstride.contract import Batch, Limits, SpecialIds
from longstride.objectives import OBJECTIVES, Plan
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.decoder import Greedy
from longstride.systems.draft_verify.decoder import DraftVerify
from longstride.systems.draft_verify.objective import DrafterObjective, DrafterObjectiveOptions
from tests.decoding.test_kept import SPECIALS, foreign_source, train_a_little
from tests.models import tiny_model
from tests.runtime.graphs import BOTH

T5 = {
    "norm": "pre", "norm_type": "rms", "bias": False, "scale_attention": False, "positions": "relative",
    "relative_buckets": 8, "relative_distance": 20, "scale_embeddings": False, "head": 6,
}  # fmt: skip
FAMILIES: dict[str, tuple[SpecialIds, dict[str, Any]]] = {
    "marian": (SPECIALS["marian"], {"activation": "silu", "logits_bias": True}),
    "m2m100": (SPECIALS["nllb"], {"norm": "pre", "sinusoid": "fairseq", "position_offset": 2}),
    "bart": (
        SPECIALS["bart"],
        {"positions": "learned", "position_offset": 2, "embedding_norm": True, "scale_embeddings": False},
    ),
    "t5": (SPECIALS["t5"], {**T5, "scale_logits": True}),
    "t5-gated": (SPECIALS["t5"], {**T5, "gated": True, "activation": "gelu-tanh", "tie": "none"}),
}
ENCODERS = {"shared": {"encoder": "shared"}, "partial": {"encoder": "partial", "shared_layers": 1, "encoder_layers": 1}}


def trained(name: str, encoder: str, width: int) -> tuple[Any, Any, list[float]]:
    """A verifier of this family, a drafter of it after some updates on the verifier's own output, and its losses."""
    special, changes = FAMILIES[name]
    model = tiny_model(3, torch.float32, sharpness=1.5, encoder_layers=2, special=special, **changes)
    source = foreign_source(special, 6, 2)
    outputs = Greedy(model, EagerRunner()).decode(source, Limits(max_length=8)).tokens
    targets = [torch.tensor([*output, special.eos]) for output in outputs]
    settings = {
        "width": width, "heads": 2, "feed_forward": 16, "decoder_layers": 1, "block": 3, "link": 2, "longest": 32,
        "dropout": 0.0, "kept": 9, "begin": "verifier", **ENCODERS[encoder],
    }  # fmt: skip
    plan = Plan(settings, 0, {"model": model}, name, special=special, targets=torch.cat(targets).numpy())
    torch.manual_seed(0)
    both = OBJECTIVES["drafter"].model(plan).train()
    padded = torch.nn.utils.rnn.pad_sequence(targets, batch_first=True, padding_value=special.pad)
    lengths = torch.tensor([len(target) for target in targets])
    batch = Batch(source.ids, padded, source.lengths, lengths, torch.arange(6))
    objective = DrafterObjective(DrafterObjectiveOptions(glance_first=0.0, glance_last=0.0, label_smoothing=0.0))
    prepared = objective.prepare(batch, torch.Generator().manual_seed(0))
    losses = train_a_little(objective, both, prepared, 5)
    return both.model, both.drafter.eval().requires_grad_(False), losses


@pytest.mark.parametrize(("encoder", "width"), [("shared", 16), ("shared", 8), ("partial", 16)])
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_drafter_is_built_trained_and_decoded_with(name, encoder, width):
    model, drafter, losses = trained(name, encoder, width)
    assert losses[-1] < losses[0]
    source, limits, runner = foreign_source(FAMILIES[name][0], 4, 5), Limits(max_length=12), EagerRunner()
    model, drafter = model.double(), drafter.double()
    expected = Greedy(model, runner).decode(source, limits).tokens
    assert DraftVerify(model, drafter, runner).decode(source, limits, capacity=2).tokens == expected


@BOTH
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_in_graphs_too(graphs, name):
    model, drafter, _ = trained(name, "partial" if name == "t5" else "shared", 16)
    source, limits, runner = foreign_source(FAMILIES[name][0], 4, 5), Limits(max_length=12), graphs("fp32", 1)
    expected = Greedy(model, runner).decode(source, limits).tokens
    assert DraftVerify(model, drafter, runner).decode(source, limits, capacity=2).tokens == expected
