"""Who a word of a step is linked to: the one before it in its direction, where that is of the same step.

A step has c words of each of h directions, and slot t belongs to direction t mod h: so the neighbour of slot t is slot
t - h, and the first h slots of a step have none. What such a neighbour is worth, a table tells (longstride.nn.link):

    p(y_t | step so far, earlier steps, x) = softmax(logits_t + link(y_(t-h), state_t))

Directions stay independent of each other. Their words of one step stand far apart, but for those that meet in a
segment's middle, of which nobody knows before the length is known. None of the papers has this.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.nn.link import Link
from longstride.systems.interleaved.options import InterleavingOptions


def neighbours(words: Tensor, h: int) -> Tensor:
    """[rows, slots] words in the order of writing -> the word before each in its direction, PAD where there is none"""
    return F.pad(words, (h, 0))[:, : words.shape[1]]


def has_neighbour(slots: Tensor, options: InterleavingOptions) -> Tensor:
    """[...] slots -> [...] bool: whether the word before it in its direction is of the same step"""
    return slots % options.step >= options.h


def widened(link: Link, hidden: Tensor, words: Tensor, options: InterleavingOptions) -> Tensor:
    """hidden [rows, slots, width] of known words [rows, slots] in whole steps -> [rows, slots, width + rank], to be
    multiplied by the link's widened weight"""
    asked = link.asked(hidden, neighbours(words, options.h))
    linked = has_neighbour(torch.arange(words.shape[1], device=words.device), options)
    return torch.cat([hidden, asked.masked_fill(~linked[:, None], 0)], dim=-1)
