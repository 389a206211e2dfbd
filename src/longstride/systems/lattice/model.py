"""The scorer: an ordinary Transformer with a shallow decoder that sees no further back than a few words.

Its weights have an ordinary Transformer's names, so that it can start as one: the encoder as it is, the head as the
first layers of the decoder. What makes it a Markov model is what its slots see: in training `objective` says so, in a
lattice `scoring`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from longstride.contract import option
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
    """What is trained: the scorer. The tables go along, for validation by decoding, but are no part of the state."""

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
