"""One token after another under teacher forcing: the label-smoothed cross-entropy of training, and the probability of
given outputs."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from longstride import ops
from longstride.contract import Likelihood, Loss, Objective, Prepared, Runner
from longstride.nn.losses import Smoothing, log_probabilities, log_probabilities_of
from longstride.nn.transformer import Transformer


def shifted(target: Tensor, start: int) -> Tensor:
    """[rows, length] -> the decoder's inputs: the start symbol, then all but the last token."""
    return F.pad(target[:, :-1], (1, 0), value=start)


class AutoregressiveObjective(Objective):
    """−log p(y_t | y_<t, x), smoothed and summed."""

    options: Smoothing

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


def likelihood(model: Transformer, runner: Runner, choose: Callable[[Tensor], Tensor] | None = None) -> Likelihood:
    """Of an ordinary Transformer; `choose` changes states before they are projected: a learned first head, say."""

    def score(source: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Tensor:
        visible = ops.real(lengths, source.shape[1])
        hidden = model.decode(shifted(target, model.special.start), model.encode(source, visible), visible)
        hidden = hidden if choose is None else choose(hidden)
        return log_probabilities(hidden, model.output_weight, target, target_lengths, model.logits_bias)

    def offer(source: Tensor, target: Tensor, ids: Tensor) -> Tensor:
        hidden = model.decode(F.pad(target, (1, 0), value=model.special.start), model.encode(source, None), None)
        hidden = hidden if choose is None else choose(hidden)
        return log_probabilities_of(hidden[0], model.output_weight, ids, model.logits_bias)

    return Likelihood(score, runner, model.special, offer=offer)
