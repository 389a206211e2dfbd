"""The scorer: an ordinary Transformer with a shallow decoder that sees no further back than a few words.

Its weights have an ordinary Transformer's names, so that it can start as one: the encoder as it is, the head as the
first layers of the decoder. What makes it a Markov model is a rule of sight, here for training: target slots are cut
into segments of `order` slots; the first of a segment reads START instead of the word before, and no slot sees another
segment. So the j-th slot of a segment learns P(word | the j - 1 words before it, its position, source).

Knows nothing of candidates, lengths or search; how all edges of a lattice are scored at once is in `scoring`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from longstride.contract import START, option
from longstride.nn.options import TransformerOptions
from longstride.nn.transformer import Transformer


@dataclass(frozen=True)
class ScorerOptions(TransformerOptions):
    """A Transformer's options, with a head of one layer unless told otherwise."""

    decoder_layers: int = option(1, "Depth of the head that scores edges.", least=1, most=1000)
    order: int = option(3, "Longest n-gram it learns: 2 for edges alone, 3 for triples too.", least=2, most=16)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_beyond_marian("A lattice's scorer")


class Scorer(Transformer):
    """Encoder, embeddings and head."""

    options: ScorerOptions

    def __init__(self, options: ScorerOptions) -> None:
        super().__init__(options)


class LatticeModel(nn.Module):
    """What is trained: the scorer. The tables that it will search with go along, for validation by decoding.

    They are no part of the module: nothing in them is trained, and a checkpoint without them is a tenth of the size.
    """

    def __init__(self, model: Scorer, tables: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._companion = [tables]  # a list hides it from the module's state

    @property
    def tables(self) -> nn.Module:
        """The candidate tables, where the scorer is."""
        return self._companion[0].to(self.model.output_weight.device)

    def encode(self, source: Tensor, visible: Tensor | None) -> Tensor:
        """[rows, source, width]; an encoder that is wholly frozen reads without dropout and keeps no gradients."""
        return self.model.encode_for_training(source, visible)


def segments(offsets: Tensor, order: Tensor | int, length: int) -> Tensor:
    """[rows, length] which segment each slot is in; segments begin at `offsets` [rows] and every `order` slots after.

    The first may be a part of one.
    """
    slots = torch.arange(length, device=offsets.device)
    of_row = order if isinstance(order, int) else order[:, None]
    return torch.div(slots - offsets[:, None], of_row, rounding_mode="floor")


def segment_inputs(target: Tensor, segment: Tensor) -> Tensor:
    """[rows, length] what the head reads: the word before, or START where a segment begins."""
    before = torch.cat([torch.full_like(target[:, :1], START), target[:, :-1]], dim=1)
    begins = torch.ones_like(segment, dtype=torch.bool)
    begins[:, 1:] = segment[:, 1:] != segment[:, :-1]
    return torch.where(begins, START, before)


def segment_mask(segment: Tensor) -> Tensor:
    """[rows, 1, length, length] who sees whom: a slot itself and what comes before it in its own segment."""
    length = segment.shape[1]
    same = segment[:, :, None] == segment[:, None, :]
    causal = torch.ones(length, length, dtype=torch.bool, device=segment.device).tril()
    return (same & causal)[:, None]
