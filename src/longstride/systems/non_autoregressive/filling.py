"""Sentences from canvases: the best word in every slot, for all lengths at once, and of the lengths the best.

A canvas of length T has EOS in its last slot and words in all others: what the model would rather have there is not
asked. Lengths are ranked by (log P(T | x) + log P(y | x, T)) / T: a mean, since a sum would favour short outputs, and
with the length's own probability in it, since a model that has only ever seen canvases of the right length can be sure
of every word on one that is not. Pure functions of tensors and weights; logits exist a portion at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longstride import ops
from longstride.engine.one_step import pack
from longstride.search.repeats import without_repeats
from longstride.systems.non_autoregressive.model import OnePass

MAX_LOGITS = 1 << 27
"""So many logits exist at once."""
MAX_LOGITS_CPU = 1 << 22
"""So many logits exist at once on a processor, whose caches they should fit into."""


@dataclass(frozen=True)
class Encoded:
    """Sources as the decoder reads them."""

    ids: Tensor
    """[rows, source]"""
    lengths: Tensor
    """[rows]"""
    memory: Tensor
    """[rows, source, width]"""
    visible: Tensor | None
    """[rows, source] bool; None where nothing is padded"""

    def slice(self, rows: slice) -> Encoded:
        """Some sentences alone."""
        visible = None if self.visible is None else self.visible[rows]
        return Encoded(self.ids[rows], self.lengths[rows], self.memory[rows], visible)


@dataclass(frozen=True)
class Best:
    """Of every slot of every canvas, one after the other."""

    words: Tensor
    """[slots] the best"""
    of_words: Tensor
    """[slots] its log-probability"""
    of_eos: Tensor
    """[slots] the log-probability of EOS"""


def encode(model: OnePass, ids: Tensor, lengths: Tensor, padded: bool) -> Encoded:
    """ids [rows, source], lengths [rows]; without padding attention needs no mask, which is faster."""
    visible = ops.real(lengths, ids.shape[1]) if padded else None
    return Encoded(ids, lengths, model.encode(ids, visible), visible)


def fill(
    model: OnePass, banned: Tensor, dedup: int, encoded: Encoded, lengths: Tensor, odds: Tensor, columns: int
) -> Tensor:
    """The best output of each sentence, of the `lengths` [rows, n] that are tried, none above `columns`.

    `odds` [rows, n] float64 count as one more token of an output of that length, which at -inf is out of the question;
    `banned` [vocabulary] bool says which ids are no words.
    """
    canvases = encoded.ids, encoded.lengths, lengths.flatten(), columns
    found = best(model, banned, encoded.memory, encoded.visible, *canvases)
    return choose(found, lengths, odds, columns, dedup, model.special.eos)


def best(
    model: OnePass,
    banned: Tensor,
    memory: Tensor,
    visible: Tensor | None,
    ids: Tensor,
    source_lengths: Tensor,
    lengths: Tensor,
    columns: int,
    copied: Tensor | None = None,
) -> Best:
    """The best word of every slot on canvases of these `lengths` [canvases]; arguments as of :meth:`OnePass.forward`"""
    hidden = model(memory, visible, ids, source_lengths, lengths, columns, copied)

    def search(states: Tensor) -> tuple[Tensor, Tensor]:
        logits = _wide(model.logits(states))
        words = logits.masked_fill(banned, -torch.inf).argmax(dim=-1, keepdim=True)
        wanted = torch.cat([words, torch.full_like(words, model.special.eos)], dim=-1)
        return words[:, 0], ops.log_shares(logits, wanted)

    portion = max(2, (MAX_LOGITS_CPU if hidden.device.type == "cpu" else MAX_LOGITS) // model.options.vocabulary)
    kind = hidden.dtype if hidden.dtype == torch.float64 else torch.float32
    words, shares = ops.in_portions(search, [hidden.flatten(0, 1)], portion, (torch.int64, kind))
    return Best(words, shares[:, 0], shares[:, 1])


def choose(found: Best, lengths: Tensor, odds: Tensor, columns: int, dedup: int, eos: int) -> Tensor:
    """Of what stands on canvases of these `lengths` [rows, n], the best of each row, after which EOS is repeated.

    See :func:`fill`. -> [rows, 1, 3 + columns] as :func:`longstride.engine.one_step.pack` has it
    """
    shape = (*lengths.shape, columns)
    words, of_words, of_eos = (
        part.view(shape) for part in (found.words, found.of_words.double(), found.of_eos.double())
    )
    slots = torch.arange(columns, device=words.device)
    last = lengths[..., None] - 1
    total = torch.where(slots < last, of_words, torch.where(slots == last, of_eos, 0)).sum(dim=-1)
    score, best = ((total + odds) / lengths).max(dim=1, keepdim=True)
    tokens = words.gather(1, best[..., None].expand(-1, -1, columns))[:, 0]
    chosen = lengths.gather(1, best)[:, 0]
    if dedup:
        stay = without_repeats(tokens, chosen - 1, dedup)
        tokens = tokens.gather(1, (~stay).long().argsort(dim=1, stable=True))
        chosen = stay.sum(dim=1) + 1
    tokens = torch.where(slots < chosen[:, None] - 1, tokens, eos)
    return pack(chosen[:, None], score, total.gather(1, best), tokens[:, None])


def place_scores(model: OnePass, source: Tensor, source_lengths: Tensor, columns: int, spread: int = 3) -> Tensor:
    """log P(y_t | x, t) of the first `columns` places, [rows, columns, vocabulary], for whoever knows no length.

    Σ_T P(T | x) P(y_t | x, t, T) over the canvases, of lengths within `spread` of the predicted one, that have a word
    at t; beyond all of them, the longest one's. A lattice takes its candidates from this. Reads one number back.
    """
    encoded = encode(model, source, source_lengths, padded=True)
    wished = model.options.length.predict(source_lengths)[:, None]
    wished = wished + torch.arange(-spread, spread + 1, device=source.device)
    lengths = wished.clamp(2, model.options.longest)
    widest = max(columns, int(lengths.max()))
    hidden = model(encoded.memory, encoded.visible, source, source_lengths, lengths.flatten(), widest)
    hidden = hidden.view(*lengths.shape, widest, -1)[:, :, :columns].transpose(1, 2).flatten(0, 1)
    slots = torch.arange(columns, device=source.device)
    counted = (slots[:, None] < lengths[:, None, :] - 1) & (wished == lengths)[:, None, :]
    counted[..., -1] |= ~counted.any(dim=-1)
    odds = model.options.length.log_odds(source_lengths, lengths)[:, None, :].masked_fill(~counted, -torch.inf)
    weights = odds.log_softmax(dim=-1).flatten(0, 1)

    def mixed(states: Tensor, weights: Tensor) -> list[Tensor]:
        scores = _wide(model.logits(states)).log_softmax(dim=-1)
        return [(scores + weights[:, :, None].to(scores.dtype)).logsumexp(dim=1)]

    portion = max(1, MAX_LOGITS // (model.options.vocabulary * lengths.shape[1]))
    (found,) = ops.in_portions(mixed, [hidden, weights], portion, (torch.float32,))
    return found.view(len(source), columns, -1)


def _wide(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype.itemsize < 4 else logits
