"""No n-gram twice, or not again and again: which ids would complete one that stands in a slot's prefix already, and
logits without them.

A prefix is the decoder's own input, its start token counted, up to and with the slot: so n-grams are counted as Hugging
Face's `no_repeat_ngram_size` counts them. In a draft, a slot's prefix is what is committed and its own ancestors.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.contract import Limits
from longstride.verification.acceptance import FORBIDDEN
from longstride.verification.tree import Tree


def completions(inputs: Tensor, filled: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """inputs [rows, slots or 1, columns], the first `filled` [rows, slots] of which are a slot's prefix -> the last ids
    of all n-grams there may be [rows, slots, n-grams], and whether the others of each are those that the prefix ends in
    """
    count = max(0, inputs.shape[-1] - n + 1)
    begin = torch.arange(count, device=inputs.device)
    again = begin + n <= filled[..., None]
    if not count:
        n = 1
    wide = inputs.expand(-1, filled.shape[1], -1)
    for place in range(n - 1):
        newest = wide.gather(2, (filled - n + 1 + place).clamp(min=0)[..., None])
        again = again & (inputs[..., place : place + count] == newest)
    return wide[..., n - 1 : n - 1 + count], again


def without_repeats(logits: Tensor, inputs: Tensor, filled: Tensor, n: int) -> Tensor:
    """logits [rows, slots, vocabulary] with all that would repeat an n-gram forbidden; see :func:`completions`."""
    ids, again = completions(inputs, filled, n)
    never = torch.where(again, FORBIDDEN, -FORBIDDEN).to(logits.dtype)
    return logits.scatter_reduce(-1, ids, never, "amin")


LONGEST_LOOP = 16
"""Tokens of the longest n-gram that is watched for running in a loop."""


def without_loops(logits: Tensor, inputs: Tensor, filled: Tensor, times: int) -> Tensor:
    """logits [rows, slots, vocabulary] with all forbidden by which some n-gram, of up to 16 tokens, would stand more
    than `times` times one right after another; see :func:`completions`."""
    wide = inputs.expand(-1, filled.shape[1], -1)
    for n in range(1, LONGEST_LOOP + 1):
        least = (times + 1) * n - 1  # tokens of a prefix that lacks one of such a loop
        if least > wide.shape[-1]:
            break
        places = filled[..., None] - least + torch.arange(least, device=inputs.device)
        last = wide.gather(2, places.clamp(min=0))
        again = (last[..., n:] == last[..., : least - n]).all(dim=-1) & (filled >= least)
        never = torch.where(again, FORBIDDEN, -FORBIDDEN).to(logits.dtype)
        logits = logits.scatter_reduce(-1, last[..., least - n, None], never[..., None], "amin")
    return logits


def within(limits: Limits, logits: Tensor, inputs: Tensor, filled: Tensor) -> Tensor:
    """logits [rows, slots, vocabulary] with all that limits forbid for its prefix; see :func:`completions`."""
    if limits.no_repeat_ngram:
        logits = without_repeats(logits, inputs, filled, limits.no_repeat_ngram)
    return without_loops(logits, inputs, filled, limits.max_repeats) if limits.max_repeats else logits


def drafted_inputs(
    tokens: Tensor, start: Tensor, ids: Tensor, first: int, tree: Tree | None = None
) -> tuple[Tensor, Tensor]:
    """The prefixes of a step's slots, as :func:`completions` takes them.

    tokens [rows, columns] are committed, `start` [rows] of them; ids [rows, step] are the newest one (`first` where
    there is none, the decoder's start token) and a draft, which is a chain or a tree.
    """
    step = ids.shape[1]
    depths = torch.arange(step, device=ids.device)
    places = start[:, None] + depths
    inputs = F.pad(tokens, (1, 0), value=first)
    if tree is None:
        return inputs.scatter(1, places, ids)[:, None], places + 1
    # [rows, slot, depth] the slot's ancestor of each depth, and nothing beyond its own
    ancestors = (tree.above[..., None] & (tree.depth[:, None, :, None] == depths)).long() * ids[:, None, :, None]
    inputs = inputs[:, None].expand(-1, step, -1).scatter(2, places[:, None].expand(-1, step, -1), ancestors.sum(dim=2))
    return inputs, start[:, None] + tree.depth + 1
