"""The ordinary objective and likelihood on reordered targets: words change places; nothing else does.

A step's words are given those of all earlier steps (Eq. 2) and, with a link, each its neighbour in the step too: the
probability of a step is still a product over its words.
"""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional as F

from longstride import ops
from longstride.contract import Factorisation, Likelihood, Loss, Objective, Prepared, Runner
from longstride.contract.training import LEFT_TO_RIGHT
from longstride.nn.losses import Smoothing, log_probabilities
from longstride.systems.interleaved.model import InterleavedModel
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.systems.interleaved.slots import interleave, shifted

WIDTHS = 8
"""On a GPU, attention with a mask wants rows of a multiple of so many slots, and pads others anew in every layer."""


class InterleavedObjective(Objective):
    """−log p(words of a step | words of all earlier steps, x), smoothed and summed; with a link, of every word given
    its neighbour in the step too. Validation tells two things of the first step besides: `apart`, how far its states
    are from each other, and `nll_first`, the loss of a word of it."""

    options: Smoothing

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
            # Of the first step, and of sentences rather than tokens: a mean over tokens is what is shown.
            figures["apart"] = (_apart(hidden[:, : o.step]) * lengths).sum()
            first = lengths.clamp(max=o.step)
            begin = (states[:, : o.step], weight, words[:, : o.step], first, model.model.logits_bias)
            figures["nll_first"] = -(log_probabilities(*begin).sum(1) / first * lengths).sum()
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


def factorisation_of(options: InterleavingOptions) -> Factorisation:
    """Order goes by h and its direction, independence by the step: Table 3 compares models of one order."""
    order = LEFT_TO_RIGHT if options.h == 1 else f"{options.h}-directions-{options.order}"
    return Factorisation(order, options.step, bool(options.link))


def likelihood(model: InterleavedModel, runner: Runner) -> Likelihood:
    """Of an interleaved model of any settings, the autoregressive one in interleaved order included."""
    options, special = model.options, model.model.special

    def score(source: Tensor, source_lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Tensor:
        visible = ops.real(source_lengths, source.shape[1])
        memory = model.model.encode(source, visible)
        # The last step is whole, as it is when it is decoded: all its slots are seen, though no word stands there.
        whole = F.pad(target, (0, -target.shape[1] % options.step), value=special.pad)
        words = interleave(whole, target_lengths - 1, options.h, options.order)
        hidden = model.decode(shifted(words, options.step, special.start), memory, visible)
        found = log_probabilities(*model.projection(hidden, words), words, target_lengths, model.model.logits_bias)
        return found[:, : target.shape[1]]

    return Likelihood(score, runner, special, factorisation_of(options))
