"""A frozen encoder is read as it will be when decoding: without dropout, and nothing of it changes."""

from __future__ import annotations

import torch

from longstride.nn.losses import Smoothing
from longstride.nn.transformer import Transformer
from longstride.systems.interleaved.model import InterleavedModel, Interleaving
from longstride.systems.interleaved.objective import InterleavedObjective
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.training.naming import freeze
from tests.models import tiny_options
from tests.training.test_drafter_objective import make_batch


def test_an_interleaved_decoder_learns_on_a_frozen_encoder() -> None:
    options = tiny_options(dropout=0.5)
    model = InterleavedModel(Transformer(options), Interleaving(InterleavingOptions(width=options.width)))
    objective = InterleavedObjective(Smoothing(0.0))
    prepared = objective.prepare(make_batch([4, 7], [5, 6], 0), torch.Generator())
    seen: list[torch.Tensor] = []
    encode = model.model.encode

    def watched(*arguments: torch.Tensor | None) -> torch.Tensor:
        seen.append(encode(*arguments))  # type: ignore[arg-type]
        return seen[-1]

    model.model.encode = watched  # type: ignore[assignment,method-assign]
    model.train()
    objective.loss(model, prepared)
    freeze(model, ["model.encoder.*", "model.target_embedding.weight"])
    for _ in range(2):
        objective.loss(model, prepared).total.backward()
    assert not torch.equal(seen[0], seen[1]), "dropout, as long as it is trained"
    assert torch.equal(seen[1], seen[2])
    assert model.model.dropout.training
    assert model.model.target_embedding.weight.grad is None
    assert all(weight.grad is not None for weight in model.model.decoder.parameters())


def test_embeddings_that_are_trained_learn_through_frozen_layers() -> None:
    options = tiny_options(tie="target", embedding_norm=True)
    model = InterleavedModel(Transformer(options), Interleaving(InterleavingOptions(width=options.width)))
    objective = InterleavedObjective(Smoothing(0.0))
    freeze(model, ["model.encoder.*"])
    objective.loss(model, objective.prepare(make_batch([4, 7], [5, 6], 0), torch.Generator())).total.backward()
    read = {name: weight for name, weight in model.model.named_parameters() if name.startswith("source_")}
    assert len(read) == 3
    assert all(weight.grad is not None for weight in read.values())
    assert all(weight.grad is None for weight in model.model.encoder.parameters())
