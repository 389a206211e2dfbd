"""The token loss, cross-entropy with label smoothing, and log-probabilities of given tokens, from hidden states."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longstride import ops
from longstride.contract import option
from longstride.contract.options import Options

PART = 2048
"""Tokens whose logits exist at once, where log-probabilities are asked for: no table of all logits exists."""


@dataclass(frozen=True)
class Smoothing(Options):
    """What every objective lets one choose about the token loss."""

    label_smoothing: float = option(0.1, "Probability spread evenly over the vocabulary.", least=0, below=1)


class TokenLoss(nn.Module):
    """Output projection and label-smoothed cross-entropy in one compilable unit; holds no weights.

    With smoothing ε spread evenly over the vocabulary, −Σ q log p = lse(z) − (1−ε)·z_target − ε·mean(z): no
    log-softmax of the whole vocabulary needs to exist.
    """

    compile_unit = True

    def forward(
        self,
        hidden: Tensor,
        weight: Tensor,
        target: Tensor,
        smoothing: float,
        counted: Tensor,
        share: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """hidden [rows, length, width], weight [vocabulary, width], target [rows, length] -> summed loss and summed
        negative log-likelihood over all targets that are `counted` ([rows, length] bool), each `share` times ([rows or
        1, length]); `bias` [vocabulary] is added to logits."""
        logits = F.linear(hidden, weight, bias)
        logits = logits.float() if logits.dtype.itemsize < 4 else logits
        normaliser = logits.logsumexp(dim=-1)
        chosen = logits.gather(-1, target[..., None]).squeeze(-1)
        times = counted.to(logits.dtype)
        times = times if share is None else times * share
        nll = ((normaliser - chosen) * times).sum()
        if smoothing == 0:
            return nll, nll.detach()
        smoothed = ((normaliser - (1 - smoothing) * chosen - smoothing * logits.mean(dim=-1)) * times).sum()
        return smoothed, nll.detach()


def log_probabilities(
    hidden: Tensor, weight: Tensor, target: Tensor, lengths: Tensor, bias: Tensor | None = None
) -> Tensor:
    """hidden [rows, length, width], weight [vocabulary, width], target [rows, length], lengths [rows] -> [rows, length]

    float64, for sums over many sentences, of logits in fp32 or more; 0 beyond a row's length.
    """
    found = []
    flat, tokens = hidden.flatten(0, 1), target.flatten()
    for start in range(0, len(tokens), PART):
        part = tokens[start : start + PART, None]
        logits = F.linear(flat[start : start + PART], weight, bias)
        logits = logits.float() if logits.dtype.itemsize < 4 else logits
        chosen = logits.gather(-1, part).squeeze(-1)
        found.append((chosen - logits.logsumexp(dim=-1)).double())
    return torch.where(ops.real(lengths, target.shape[1]), torch.cat(found).view(target.shape), 0.0)


def log_probabilities_of(hidden: Tensor, weight: Tensor, ids: Tensor, bias: Tensor | None = None) -> Tensor:
    """hidden [slots, width], weight [vocabulary, width], ids [number] -> [slots, number] float64: of these in each"""
    found = []
    for start in range(0, len(hidden), PART):
        logits = F.linear(hidden[start : start + PART], weight, bias)
        logits = logits.float() if logits.dtype.itemsize < 4 else logits
        found.append((logits[:, ids] - logits.logsumexp(dim=-1, keepdim=True)).double())
    return torch.cat(found)
