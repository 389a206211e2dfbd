"""Training one token after another: label-smoothed cross-entropy under teacher forcing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from longstride.contract import START, Batch, Loss, Objective, Prepared
from longstride.nn import masks
from longstride.nn.losses import Smoothing
from longstride.nn.transformer import Transformer


@dataclass(frozen=True)
class AutoregressiveObjectiveOptions(Smoothing):
    """Options of the label-smoothed objective."""


def shifted(target: Tensor) -> Tensor:
    """[rows, length] -> the decoder's inputs: START, then all but the last token."""
    start = torch.full_like(target[:, :1], START)
    return torch.cat([start, target[:, :-1]], dim=1)


class AutoregressiveObjective(Objective):
    """−log p(y_t | y_<t, x), smoothed and summed."""

    def __init__(self, options: AutoregressiveObjectiveOptions) -> None:
        self.options = options

    def prepare(self, batch: Batch, rng: torch.Generator, progress: float = 1.0) -> Prepared:
        """Shift the targets; nothing here is random."""
        tensors = {
            "inputs": shifted(batch.target),
            "target": batch.target,
        }
        return Prepared.of(batch, tensors)

    def loss(self, model: nn.Module, prepared: Prepared) -> Loss:
        """Summed over all real target tokens."""
        assert isinstance(model, Transformer)
        tensors = prepared.tensors
        source = tensors["source"]
        visible = masks.of_sources(prepared)
        memory = model.encode(source, visible)
        hidden = model.decode(tensors["inputs"], memory, visible)
        projection, smoothing = (hidden, model.output_weight), self.options.label_smoothing
        total, nll = model.token_loss(*projection, tensors["target"], smoothing, bias=model.logits_bias)
        return Loss(total, {"nll": nll})
