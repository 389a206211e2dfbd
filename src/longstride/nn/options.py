"""The shape of a Transformer, as options. Defaults: the papers' base size, a Marian model weight for weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from longstride.contract import OptionError, option
from longstride.contract.options import at_least, probabilities


@dataclass(frozen=True)
class TransformerOptions:
    """Architecture of an encoder-decoder Transformer."""

    vocabulary: int = option(help="Target vocabulary size, the five reserved ids included.")
    source_vocabulary: int | None = option(None, "Source vocabulary size where it differs (then tie cannot be all).")
    width: int = option(512, "Model width d.")
    feed_forward: int = option(2048, "Hidden width of the feed-forward layers.")
    heads: int = option(8, "Attention heads; must divide the width.")
    encoder_layers: int = option(6, "Encoder depth.")
    decoder_layers: int = option(6, "Decoder depth.")
    norm: Literal["post", "pre"] = option(
        "post", "Layer norm after each residual sum (post) or before each block (pre)."
    )
    activation: Literal["relu", "gelu", "silu"] = option("relu", "Activation of the feed-forward layers.")
    positions: Literal["sinusoidal", "learned"] = option("sinusoidal", "Kind of position embedding.")
    longest: int = option(1024, "Positions run from -longest to longest (sinusoidal) or from 0 (learned).")
    tie: Literal["all", "target", "none"] = option(
        "all", "Share source, target and output embeddings (all), target and output (target), or nothing."
    )
    scale_embeddings: bool = option(True, "Multiply token embeddings by the square root of the width.")
    dropout: float = option(0.1, "Dropout on embeddings and on each block's output, before the residual sum.")
    attention_dropout: float = option(0.0, "Dropout on attention weights.")
    activation_dropout: float = option(0.0, "Dropout after the feed-forward activation.")

    def __post_init__(self) -> None:
        at_least(1, self, "vocabulary", "width", "feed_forward", "heads", "encoder_layers", "decoder_layers", "longest")
        if self.width % self.heads:
            raise OptionError(f"heads expects a divisor of the width {self.width}, found {self.heads}.")
        if self.width % 2:
            raise OptionError(f"width expects an even number, found {self.width}.")
        if self.tie == "all" and self.source_vocabulary not in (None, self.vocabulary):
            raise OptionError("tie: all expects one vocabulary for both sides; use tie: target where they differ.")
        probabilities(self, "dropout", "attention_dropout", "activation_dropout")

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads
