"""Training one token after another: label-smoothed cross-entropy under teacher forcing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride.contract import Batch, Loss, Objective, Prepared
from longstride.nn.losses import Smoothing
from longstride.nn.transformer import Transformer


@dataclass(frozen=True)
class AutoregressiveObjectiveOptions(Smoothing):
    """Options of the label-smoothed objective."""


def shifted(target: Tensor, start: int) -> Tensor:
    """[rows, length] -> the decoder's inputs: the start symbol, then all but the last token."""
    return F.pad(target[:, :-1], (1, 0), value=start)


class AutoregressiveObjective(Objective):
    """−log p(y_t | y_<t, x), smoothed and summed."""

    def __init__(self, options: AutoregressiveObjectiveOptions) -> None:
        self.options = options

    def prepare(self, batch: Batch, rng: torch.Generator, progress: float = 1.0) -> Prepared:
        """The batch as it is; nothing here is random."""
        return Prepared.of(batch)

    def loss(self, model: nn.Module, prepared: Prepared) -> Loss:
        """Summed over all real target tokens."""
        assert isinstance(model, Transformer)
        tensors = prepared.tensors
        source = tensors["source"]
        visible = prepared.source_mask
        memory = model.encode(source, visible)
        target, counted = tensors["target"], prepared.target_mask
        hidden = model.decode(shifted(target, model.special.start), memory, visible)
        projection, smoothing = (hidden, model.output_weight), self.options.label_smoothing
        total, nll = model.token_loss(*projection, target, smoothing, counted, bias=model.logits_bias)
        return Loss(total, {"nll": nll})
