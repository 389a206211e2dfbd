"""Training one token after another: label-smoothed cross-entropy under teacher forcing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from longstride.contract import START, Batch, Loss, Objective, OptionError, Prepared, option
from longstride.nn import masks
from longstride.nn.transformer import Transformer


@dataclass(frozen=True)
class AutoregressiveObjectiveOptions:
    """Options of the label-smoothed objective."""

    label_smoothing: float = option(0.1, "Probability spread evenly over the vocabulary.")

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise OptionError(f"label_smoothing expects 0 to below 1, found {self.label_smoothing}.")


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
            "source": batch.source,
            "source_lengths": batch.source_lengths,
            "inputs": shifted(batch.target),
            "target": batch.target,
        }
        padded = bool((batch.source_lengths != batch.source.shape[1]).any())
        return Prepared(tensors, int(batch.target_lengths.sum()), padded)

    def loss(self, model: nn.Module, prepared: Prepared) -> Loss:
        """Summed over all real target tokens."""
        assert isinstance(model, Transformer)
        tensors = prepared.tensors
        source = tensors["source"]
        visible = masks.real(tensors["source_lengths"], source.shape[1]) if prepared.source_padded else None
        memory = model.encode(source, visible)
        hidden = model.decode(tensors["inputs"], memory, visible)
        total, nll = model.token_loss(hidden, model.output_weight, tensors["target"], self.options.label_smoothing)
        return Loss(total, {"nll": nll})
