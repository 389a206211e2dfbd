"""From words in the order of writing to sentences: order restored, repetitions taken out, each word with its step."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from longstride.search.repeats import without_repeats
from longstride.search.session import Sentences
from longstride.systems.interleaved.options import InterleavingOptions, Order
from longstride.systems.interleaved.slots import slots_of


def sentences_of(words: Tensor, lengths: Tensor, options: InterleavingOptions, dedup: int, eos: int) -> Sentences:
    """words [rows, columns] in the order of writing, `lengths` [rows] of them, fewer than columns."""
    columns = torch.arange(words.shape[1], device=words.device)
    slots = slots_of(columns, lengths, options.h, options.order)
    tokens, steps = words.gather(1, slots), slots // options.step
    kept = lengths
    if dedup:
        stay = without_repeats(tokens, lengths, dedup)
        order = (~stay).long().argsort(dim=1, stable=True)
        tokens, steps, kept = tokens.gather(1, order), steps.gather(1, order), stay.sum(dim=1)
    inside = columns < kept[:, None]
    last = (lengths // options.step)[:, None]
    return Sentences(torch.where(inside, tokens, eos), kept, torch.where(inside, steps, last))


def sentence_of(words: list[int], options: InterleavingOptions, dedup: int) -> list[int]:
    """One finished sentence, from its words in the order of writing: for hosts, which have no use for tensors of it."""
    tokens = [words[slot] for slot in _slots(len(words), options.h, options.order)]
    if not dedup or not tokens:
        return tokens
    stay = without_repeats(torch.tensor([tokens]), torch.tensor([len(tokens)]), dedup)[0].tolist()
    return [token for token, stays in zip(tokens, stay, strict=True) if stays]


@lru_cache(maxsize=4096)
def _slots(length: int, h: int, order: Order) -> tuple[int, ...]:
    """The slots of a sentence's words, in its order."""
    return tuple(slots_of(torch.arange(length), torch.tensor(length), h, order).tolist())
