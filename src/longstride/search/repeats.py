"""Taking immediate repetitions out of finished sentences, which words written independently of each other run into."""

from __future__ import annotations

import torch
from torch import Tensor


def without_repeats(tokens: Tensor, lengths: Tensor, longest: int) -> Tensor:
    """[rows, columns] sentences of `lengths` [rows] tokens -> [rows, columns] bool: which tokens stay.

    For n = 1 to `longest`: wherever n tokens are the n right before them once more, they go; so "a b a b a b a" becomes
    "a b a". Nothing beyond a row's length stays.
    """
    rows, columns = tokens.shape
    where = torch.arange(columns, device=tokens.device).expand(rows, columns)  # where each token stood at first
    lengths = lengths.clone()
    for n in range(1, min(longest, columns - 1) + 1):
        at = torch.arange(columns, device=tokens.device).expand(rows, columns)
        same = torch.zeros_like(at, dtype=torch.bool)
        same[:, n:] = tokens[:, n:] == tokens[:, :-n]
        same &= at < lengths[:, None]
        # Runs of tokens that equal the one n before them: of r such, the first ⌊r / n⌋ · n are repeated n-grams.
        begin = torch.where(~same, at, -1).cummax(dim=1).values + 1
        behind = torch.where(~same, at, columns).flip(1).cummin(dim=1).values.flip(1)
        going = same & (at - begin < (behind - begin) // n * n)
        going |= at >= lengths[:, None]
        order = going.long().argsort(dim=1, stable=True)
        tokens, where = tokens.gather(1, order), where.gather(1, order)
        lengths = (~going).sum(dim=1)
    stay = torch.arange(columns, device=tokens.device) < lengths[:, None]
    return torch.zeros_like(stay).scatter(1, where, stay)
