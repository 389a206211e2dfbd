"""Training the one-pass model: label-smoothed cross-entropy of every token of the target, on a canvas of its length.

Every slot carries loss, the last one, whose answer is EOS, too; there are no slots beyond it. Nothing is random.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from longstride.contract import Batch, Loss, Objective, OptionError, Prepared, option
from longstride.nn import frozen, masks
from longstride.systems.non_autoregressive.model import OnePass


@dataclass(frozen=True)
class NonAutoregressiveObjectiveOptions:
    """Options of the one-pass model's training."""

    label_smoothing: float = option(0.1, "Probability spread evenly over the vocabulary.")

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise OptionError(f"label_smoothing expects 0 to below 1, found {self.label_smoothing}.")


class NonAutoregressiveObjective(Objective):
    """−log p(y_t | x, t, T), smoothed and summed."""

    def __init__(self, options: NonAutoregressiveObjectiveOptions) -> None:
        self.options = options

    def prepare(self, batch: Batch, rng: torch.Generator, progress: float = 1.0) -> Prepared:
        """The batch as it is."""
        tensors = {
            "source": batch.source,
            "source_lengths": batch.source_lengths,
            "target": batch.target,
            "target_lengths": batch.target_lengths,
        }
        padded = bool((batch.source_lengths != batch.source.shape[1]).any())
        return Prepared(tensors, int(batch.target_lengths.sum()), padded)

    def loss(self, model: nn.Module, prepared: Prepared) -> Loss:
        """Summed over all target tokens."""
        assert isinstance(model, OnePass)
        tensors = prepared.tensors
        source, target, lengths = tensors["source"], tensors["target"], tensors["source_lengths"]
        visible = masks.real(lengths, source.shape[1]) if prepared.source_padded else None
        memory = frozen.encode(model, source, visible)
        hidden = model(memory, visible, source, lengths, tensors["target_lengths"], target.shape[1])
        total, nll = model.token_loss(hidden, model.output_weight, target, self.options.label_smoothing)
        return Loss(total, {"nll": nll})
