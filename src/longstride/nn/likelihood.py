"""From hidden states to the log-probabilities of given tokens, a part at a time: no table of all logits exists."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.contract import PAD

PART = 2048
"""Tokens whose logits exist at once."""


def log_probabilities(hidden: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None = None) -> Tensor:
    """hidden [rows, length, width], weight [vocabulary, width], target [rows, length] -> [rows, length]

    float64, for sums over many sentences, of logits in fp32 or more; 0 at PAD.
    """
    found = []
    flat, tokens = hidden.flatten(0, 1), target.flatten()
    for start in range(0, len(tokens), PART):
        part = tokens[start : start + PART, None]
        logits = F.linear(flat[start : start + PART], weight, bias)
        logits = logits.float() if logits.dtype.itemsize < 4 else logits
        chosen = logits.gather(-1, part).squeeze(-1)
        found.append((chosen - logits.logsumexp(dim=-1)).double())
    return torch.where(target != PAD, torch.cat(found).view(target.shape), 0.0)
