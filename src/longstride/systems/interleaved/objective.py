"""Training: the ordinary objective on reordered targets. Words change places; nothing else does."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride import ops
from longstride.contract import Batch, Loss, Objective, Prepared
from longstride.nn.losses import Smoothing
from longstride.systems.interleaved.model import InterleavedModel
from longstride.systems.interleaved.slots import interleave, shifted

WIDTHS = 8
"""On a GPU, attention with a mask wants rows of a multiple of so many slots, and pads others anew in every layer."""


@dataclass(frozen=True)
class InterleavedObjectiveOptions(Smoothing):
    """Options of the label-smoothed objective."""


class InterleavedObjective(Objective):
    """−log p(words of a step | words of all earlier steps, x), smoothed and summed; with a link, of every word given
    its neighbour in the step too."""

    def __init__(self, options: InterleavedObjectiveOptions) -> None:
        self.options = options

    def prepare(self, batch: Batch, rng: torch.Generator, progress: float = 1.0) -> Prepared:
        """Nothing here is random."""
        return Prepared.of(batch)

    def loss(self, model: nn.Module, prepared: Prepared) -> Loss:
        """Summed over all real target tokens. The order is the model's, so that it is made here."""
        assert isinstance(model, InterleavedModel)
        o, tensors = model.options, prepared.tensors
        source = tensors["source"]
        visible = prepared.source_mask
        memory = model.model.encode_for_training(source, visible)
        target, lengths, special = tensors["target"], tensors["target_lengths"], model.model.special
        words = interleave(_whole_steps(target, o.step, special.pad), lengths - 1, o.h, o.order)
        hidden = model.decode(shifted(words, o.step, special.start), memory, visible)
        states, weight = model.projection(hidden, words)
        counted = ops.real(lengths, words.shape[1])  # slots beyond the words and EOS come last in any order
        given = (states, weight, words, self.options.label_smoothing, counted)
        total, nll = model.model.token_loss(*given, bias=model.model.logits_bias)
        figures = {"nll": nll}
        if not model.training and o.step > 1:
            figures["apart"] = (_apart(hidden[:, : o.step]) * lengths).sum()
        return Loss(total, figures)


def _apart(states: Tensor) -> Tensor:
    """[rows, step, width] of a first step -> [rows] how far apart its slots are, from 0: alike to 1

    They read one start symbol and differ by position alone. A Transformer may have learnt to make a state of its own of
    that symbol, whatever stands beside it: begun with such a one, all slots say the same word and never learn better.
    """
    states = states.float()
    spread = (states - states.mean(1, keepdim=True)).square().sum((1, 2))
    return (spread / states.square().sum((1, 2))).sqrt()


def _whole_steps(target: Tensor, step: int, pad: int) -> Tensor:
    """[rows, longest] -> the same with a last step that is whole, as it is when it is decoded: its slots are seen."""
    multiple = math.lcm(step, WIDTHS) if target.is_cuda and step > 1 else step
    return F.pad(target, (0, -target.shape[1] % multiple), value=pad)
