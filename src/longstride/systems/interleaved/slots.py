"""Slots: in which order words are written, what the model is told of a slot's place, and whom it sees.

A *slot* is a place in the order of writing, a *position* a place in the sentence; both count from 0. Slot t belongs to
direction t mod h. Directions 2s and 2s + 1 share segment s of the sentence, which is as long as the slots t < n of the
two together: so n alone fixes the order, and only the last step can be partial. The even direction takes one word more
where they cannot share evenly. From side to middle (the paper):

    h = 2, n = 5    A B C D E         written  A E, B D, C          Eq. 6
    h = 4, n = 7    A B C D | E F G   written  A D E G, B C F       Eq. 9

From middle to side the same directions run backwards: C D, B E, A for five words. EOS stands in slot n, after all.
Knows no words and no models.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from longstride.ops import MaskRule, causal
from longstride.search.repeats import without_repeats
from longstride.search.session import Sentences
from longstride.systems.interleaved.options import InterleavingOptions, Order

# --- the order of writing --------------------------------------------------------------------------------------------


def positions_of(slots: Tensor, lengths: Tensor, h: int, order: Order = "side-to-middle") -> Tensor:
    """slots [..., width], lengths [...] in words -> positions [..., width]; slots beyond the words stay as they are."""
    lengths = lengths[..., None]
    if h == 1:
        return slots + torch.zeros_like(lengths)
    direction, index = slots % h, slots // h
    first = direction - direction % 2  # the even direction of the segment
    before, left, right = _segment(first, lengths, h)
    if order == "side-to-middle":
        found = torch.where(direction == first, before + index, before + left + right - 1 - index)
    else:
        found = torch.where(direction == first, before + left - 1 - index, before + left + index)
    return torch.where(slots < lengths, found, slots)


def slots_of(positions: Tensor, lengths: Tensor, h: int, order: Order = "side-to-middle") -> Tensor:
    """The inverse of :func:`positions_of`."""
    lengths = lengths[..., None]
    if h == 1:
        return positions + torch.zeros_like(lengths)
    starts = torch.arange(2, h, 2, device=positions.device)  # even directions but the first: where segments begin
    begun = positions[..., None] >= _before(starts, lengths[..., None], h)
    first = 2 * begun.sum(dim=-1)
    before, left, right = _segment(first, lengths, h)
    within = positions - before
    on_left = within < left
    if order == "side-to-middle":
        index = torch.where(on_left, within, left + right - 1 - within)
    else:
        index = torch.where(on_left, left - 1 - within, within - left)
    found = index * h + first + (~on_left).long()
    return torch.where(positions < lengths, found, positions)


def interleave(target: Tensor, lengths: Tensor, h: int, order: Order = "side-to-middle") -> Tensor:
    """[rows, longest] sentences, lengths [rows] in words -> the same in the order of writing; the rest stays behind."""
    slots = torch.arange(target.shape[-1], device=target.device)
    return target if h == 1 else target.gather(-1, positions_of(slots, lengths, h, order))


def anchors(slots: Tensor, room: int, h: int, order: Order = "side-to-middle") -> Tensor:
    """Numbers in the order of the sentence for slots [...] of one whose length is not known yet, at most `room` words.

    The left end counts up from 0, others from or towards where a sentence of any length would leave them room.
    """
    if h == 1:
        return slots
    direction, index = slots % h, slots // h
    apart = 2 * (room + 1)
    begin = direction // 2 * apart
    on_left = direction % 2 == 0
    if order == "side-to-middle":
        return begin + torch.where(on_left, index, apart - 1 - index)
    return begin + torch.where(on_left, apart // 2 - 1 - index, apart // 2 + index)


def after_all(room: int, h: int) -> int:
    """A number behind all anchors: where EOS stands."""
    return room + 1 if h == 1 else h // 2 * 2 * (room + 1)


def _before(direction: Tensor, lengths: Tensor, h: int) -> Tensor:
    """Words of all directions before this one."""
    return direction * (lengths // h) + torch.minimum(direction, lengths % h)


def _segment(first: Tensor, lengths: Tensor, h: int) -> tuple[Tensor, Tensor, Tensor]:
    """Words before the segment whose even direction is `first`, and of its two directions."""
    each, more = lengths // h, lengths % h
    return _before(first, lengths, h), each + (first < more).long(), each + (first + 1 < more).long()


# --- what a slot reads -----------------------------------------------------------------------------------------------


def shifted(words: Tensor, step: int, start: int) -> Tensor:
    """[rows, slots] -> the decoder's inputs: `step` start symbols, then all words but the last step's."""
    return F.pad(words, (step, 0), value=start)[:, : words.shape[1]]


def signals(slots: Tensor, options: InterleavingOptions) -> Tensor:
    """[...] slots -> [...] integers for the position embedding: an input slot has that of the slot which it predicts

    h = 1     0, 1, 2, 3, ...         Eq. 5
    h = 2     1, -1, 2, -2, 3, ...    Eq. 7: the sign is the direction, so that neighbours of one direction stay close
    h > 2     0, 0, 0, 0, 1, ...      Eq. 10: the index within the direction, which has an embedding of its own

    Vanilla positions are those of h = 1 for any h.
    """
    if options.h == 1 or options.signal == "vanilla":
        return slots
    if options.h == 2:
        ahead = slots // 2 + 1
        return torch.where(slots % 2 == 0, ahead, -ahead)
    return slots // options.h


def directions(slots: Tensor, options: InterleavingOptions) -> Tensor:
    """[...] slots -> [...] the direction each belongs to"""
    return slots % options.h


def neighbours(words: Tensor, h: int) -> Tensor:
    """[rows, slots] words in the order of writing -> the word before each in its direction, any where there is none"""
    return F.pad(words, (h, 0))[:, : words.shape[1]]


def has_neighbour(slots: Tensor, options: InterleavingOptions) -> Tensor:
    """[...] slots -> [...] bool: whether the word before it in its direction is of the same step"""
    return slots % options.step >= options.h


# --- whom it sees ----------------------------------------------------------------------------------------------------


def relaxed(step: int) -> MaskRule:
    """M(h, c) with h·c = `step`: a slot sees its own step and all before it."""

    def rule(query_slots: Tensor, key_slots: Tensor) -> Tensor:
        return key_slots // step <= (query_slots // step)[..., None]

    return rule


def rule_of(options: InterleavingOptions) -> MaskRule:
    """The rule that a model with these options was trained with."""
    seen = causal if options.mask == "vanilla" or options.step == 1 else relaxed(options.step)
    if not options.independent or options.h == 1:
        return seen
    h = options.h

    def within_direction(query_slots: Tensor, key_slots: Tensor) -> Tensor:
        return seen(query_slots, key_slots) & (key_slots % h == (query_slots % h)[..., None])

    return within_direction


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
