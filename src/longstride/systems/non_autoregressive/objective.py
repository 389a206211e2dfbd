"""Training the one-pass model: label-smoothed cross-entropy of every token of the target, on a canvas of its length.

Every slot carries loss, the last one, whose answer is EOS, too; there are no slots beyond it. Nothing is random.
"""

from __future__ import annotations

from torch import nn

from longstride.contract import Loss, Objective, Prepared
from longstride.nn.losses import Smoothing
from longstride.systems.non_autoregressive.model import OnePass


class NonAutoregressiveObjective(Objective):
    """−log p(y_t | x, t, T), smoothed and summed."""

    options: Smoothing

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
