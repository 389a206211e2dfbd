"""Choosing from a vocabulary, and what chosen tokens are worth."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.ops.trace import FLOAT, INTEGER, lifted, tracer_of


def best(logits: Tensor, forbidden: Tensor) -> Tensor:
    """[..., vocabulary] -> [...] the id of the largest logit, the first of equals, but none of the forbidden [n]"""
    tracer = tracer_of(logits)
    if tracer is None:
        return logits.index_fill(-1, forbidden, float("-inf")).argmax(dim=-1)
    values, ids = lifted(tracer, logits), lifted(tracer, forbidden)
    vocabulary = values.sizes[-1]
    assert isinstance(vocabulary, int)
    return tracer.value(tracer.builder.best(values.handle, ids.handle, vocabulary), INTEGER, values.sizes[:-1])  # type: ignore[return-value]


def log_shares(logits: Tensor, ids: Tensor) -> Tensor:
    """Log-probabilities of some ids [..., n] under logits [..., vocabulary] -> [..., n]"""
    if tracer_of(logits) is None:
        wide = logits if logits.dtype == torch.float64 else logits.float()
        return wide.gather(-1, ids) - wide.logsumexp(dim=-1, keepdim=True)
    return logits.log_softmax(dim=-1).gather(-1, ids)


def wide(logits: Tensor) -> torch.dtype:
    """What sums over a vocabulary are made in."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def likeliest(logits: Tensor, forbidden: Tensor, count: int, other: int) -> tuple[Tensor, Tensor, Tensor]:
    """[..., vocabulary] -> the `count` most likely ids but the forbidden [n], best first, and their log-probabilities
    [..., count], -inf where too few are left; and the log-probability of `other` [...], forbidden or not"""
    tracer = tracer_of(logits)
    if tracer is None:
        shares = logits.log_softmax(dim=-1, dtype=wide(logits))
        apart = shares[..., other].clone()
        values, ids = shares.index_fill_(-1, forbidden, float("-inf")).topk(count, dim=-1)
        return ids, values, apart
    given, sizes = lifted(tracer, logits), [*lifted(tracer, logits).sizes[:-1], count]
    never, vocabulary = lifted(tracer, forbidden).handle, given.sizes[-1]
    found = tracer.builder.largest_allowed(given.handle, never, count, vocabulary)
    best_values: Any = tracer.value(found[0], FLOAT, sizes)
    best_ids: Any = tracer.value(found[1], INTEGER, sizes)
    shares = log_shares(logits, F.pad(best_ids, (0, 1), value=other))
    possible = best_values > torch.finfo(torch.float32).min
    return best_ids, torch.where(possible, shares[..., :count], float("-inf")), shares[..., count]


def first_false(flags: Tensor) -> Tensor:
    """[rows, n] booleans -> [rows] the place of the first that is False, n where none is"""
    if tracer_of(flags) is None:
        return flags.cumprod(dim=1).sum(dim=1)
    return (~F.pad(flags, (0, 1))).argmax(dim=1)
