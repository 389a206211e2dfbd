"""The probability of given outputs, token after token from left to right, under teacher forcing."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from longstride import ops
from longstride.contract import Batch, Factorisation, Likelihood, Program, Runner
from longstride.nn import losses
from longstride.nn.transformer import Transformer
from longstride.systems.autoregressive.objective import shifted


class AutoregressiveLikelihood(Likelihood):
    """Of an ordinary Transformer; `choose` changes states before they are projected: a learned first head, say."""

    factorisation = Factorisation()

    def __init__(self, model: Transformer, runner: Runner, choose: Callable[[Tensor], Tensor] | None = None) -> None:
        self._runner, self.special = runner, model.special

        def score(source: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Tensor:
            visible = ops.real(lengths, source.shape[1])
            hidden = model.decode(shifted(target, model.special.start), model.encode(source, visible), visible)
            hidden = hidden if choose is None else choose(hidden)
            return losses.log_probabilities(hidden, model.output_weight, target, target_lengths, model.logits_bias)

        self._program = Program("likelihood", score)

    def log_probabilities(self, batch: Batch) -> Tensor:
        """[rows, longest target] float64, in reading order"""
        device = self._runner.device
        tensors = (batch.source, batch.source_lengths, batch.target, batch.target_lengths)
        found: Tensor = self._runner.call(self._program, *(tensor.to(device) for tensor in tensors))
        return found
