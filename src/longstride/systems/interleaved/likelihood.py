"""The probability of given outputs, step after step: the words of a step given those of all earlier steps (Eq. 2).

With a link, each is given its neighbour in the step too: a step's probability is still a product over its words.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from longstride import ops
from longstride.contract import Batch, Factorisation, Likelihood, Program, Runner
from longstride.nn import losses
from longstride.systems.interleaved.model import InterleavedModel
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.systems.interleaved.slots import interleave, shifted


def factorisation_of(options: InterleavingOptions) -> Factorisation:
    """Order goes by h and its direction, independence by the step: Table 3 compares models of one order."""
    linked = bool(options.link)
    if options.h == 1:
        return Factorisation(together=options.step, linked=linked)
    return Factorisation(f"{options.h}-directions-{options.order}", options.step, linked)


class InterleavedLikelihood(Likelihood):
    """Of an interleaved model of any settings, the autoregressive one in interleaved order included."""

    def __init__(self, model: InterleavedModel, runner: Runner) -> None:
        self._runner, self.special = runner, model.model.special
        options = model.options
        self.factorisation = factorisation_of(options)

        def score(source: Tensor, source_lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Tensor:
            visible = ops.real(source_lengths, source.shape[1])
            memory = model.model.encode(source, visible)
            # The last step is whole, as it is when it is decoded: all its slots are seen, though no word stands there.
            whole = F.pad(target, (0, -target.shape[1] % options.step), value=self.special.pad)
            words = interleave(whole, target_lengths - 1, options.h, options.order)
            hidden = model.decode(shifted(words, options.step, self.special.start), memory, visible)
            projection, bias = model.projection(hidden, words), model.model.logits_bias
            found = losses.log_probabilities(*projection, words, target_lengths, bias)
            return found[:, : target.shape[1]]

        self._program = Program("likelihood", score)

    def log_probabilities(self, batch: Batch) -> Tensor:
        """[rows, longest target] float64, in the order of writing"""
        device = self._runner.device
        tensors = (batch.source, batch.source_lengths, batch.target, batch.target_lengths)
        found: Tensor = self._runner.call(self._program, *(tensor.to(device) for tensor in tensors))
        return found
