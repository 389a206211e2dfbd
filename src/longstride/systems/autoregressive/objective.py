"""One token after another under teacher forcing: the label-smoothed cross-entropy of training, and the probability of
given outputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
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

    def follow(source: Tensor, target: Tensor, ids: Tensor, lengths: Tensor, places: Tensor) -> Tensor:
        number, longest = ids.shape
        before = target.shape[1] + 1  # slots of the target, which all rows share; then longest - 1 of each row
        inputs = torch.cat([F.pad(target, (1, 0), value=model.special.start), ids[:, :-1].reshape(1, -1)], dim=1)
        steps = torch.arange(1, longest, device=ids.device)
        positions = torch.cat([torch.arange(before, device=ids.device), (places[:, None] + steps).flatten()])
        row = torch.arange(number, device=ids.device).repeat_interleave(longest - 1)
        row = F.pad(row, (before, 0), value=-1)
        shared = F.pad(places.repeat_interleave(longest - 1), (before, 0), value=before)  # of the target, it sees these
        seen = torch.where(row < 0, positions <= shared[:, None], row == row[:, None])
        seen &= positions <= positions[:, None]
        if local := model.options.local_attention:
            seen &= ops.within_reach(positions, positions, local)
        hidden = model.decode(inputs, model.encode(source, None), None, positions, seen[None, None])
        hidden = (hidden if choose is None else choose(hidden))[0]
        others = hidden[before:].view(number, longest - 1, hidden.shape[-1])
        behind = torch.cat([hidden[places, None], others], dim=1)
        return log_probabilities(behind, model.output_weight, ids, lengths, model.logits_bias).sum(dim=1)

    return Likelihood(score, runner, model.special, offer=offer, follow=follow)
