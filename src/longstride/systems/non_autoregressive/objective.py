"""Training the one-pass model: label-smoothed cross-entropy of every token of the target, on a canvas of its length.

Every slot carries loss, the last one, whose answer is EOS, too; there are no slots beyond it. Nothing is random.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from longstride.contract import Batch, Loss, Objective, Prepared
from longstride.nn.losses import Smoothing
from longstride.systems.non_autoregressive.model import OnePass


@dataclass(frozen=True)
class NonAutoregressiveObjectiveOptions(Smoothing):
    """Options of the one-pass model's training."""


class NonAutoregressiveObjective(Objective):
    """−log p(y_t | x, t, T), smoothed and summed."""

    def __init__(self, options: NonAutoregressiveObjectiveOptions) -> None:
        self.options = options

    def prepare(self, batch: Batch, rng: torch.Generator, progress: float = 1.0) -> Prepared:
        """The batch as it is."""
        return Prepared.of(batch)

    def loss(self, model: nn.Module, prepared: Prepared) -> Loss:
        """Summed over all target tokens."""
        assert isinstance(model, OnePass)
        tensors = prepared.tensors
        source, target, lengths = tensors["source"], tensors["target"], tensors["source_lengths"]
        visible = prepared.source_mask
        memory = model.encode_for_training(source, visible)
        hidden = model(memory, visible, source, lengths, tensors["target_lengths"], target.shape[1])
        given = (hidden, model.output_weight, target, self.options.label_smoothing)
        total, nll = model.token_loss(*given, prepared.target_mask)
        return Loss(total, {"nll": nll})
