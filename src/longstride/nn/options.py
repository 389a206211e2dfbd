"""The shape of a Transformer, as options. Defaults: the papers' base size, a Marian model weight for weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from longstride.contract import OptionError, option
from longstride.contract.options import Options


@dataclass(frozen=True)
class TransformerOptions(Options):
    """Architecture of an encoder-decoder Transformer."""

    vocabulary: int = option(help="Target vocabulary size, the five reserved ids included.", least=1, most=10**7)
    source_vocabulary: int | None = option(
        None, "Source vocabulary size where it differs (then tie cannot be all).", least=1, most=10**7
    )
    width: int = option(512, "Model width d.", least=1, most=65536)
    feed_forward: int = option(2048, "Hidden width of the feed-forward layers.", least=1, most=2**20)
    heads: int = option(8, "Attention heads; must divide the width.", least=1, most=65536)
    encoder_layers: int = option(6, "Encoder depth.", least=1, most=1000)
    decoder_layers: int = option(6, "Decoder depth.", least=1, most=1000)
    norm: Literal["post", "pre"] = option(
        "post", "Layer norm after each residual sum (post) or before each block (pre)."
    )
    activation: Literal["relu", "gelu", "silu"] = option("relu", "Activation of the feed-forward layers.")
    positions: Literal["sinusoidal", "learned"] = option("sinusoidal", "Kind of position embedding.")
    longest: int = option(
        1024, "Positions run from -longest to longest (sinusoidal) or from 0 (learned).", least=1, most=2**20
    )
    tie: Literal["all", "target", "none"] = option(
        "all", "Share source, target and output embeddings (all), target and output (target), or nothing."
    )
    scale_embeddings: bool = option(True, "Multiply token embeddings by the square root of the width.")
    dropout: float = option(
        0.1, "Dropout on embeddings and on each block's output, before the residual sum.", least=0, below=1
    )
    attention_dropout: float = option(0.0, "Dropout on attention weights.", least=0, below=1)
    activation_dropout: float = option(0.0, "Dropout after the feed-forward activation.", least=0, below=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise OptionError(f"heads expects a divisor of the width {self.width}, found {self.heads}.")
        if self.width % 2:
            raise OptionError(f"width expects an even number, found {self.width}.")
        if self.tie == "all" and self.source_vocabulary not in (None, self.vocabulary):
            raise OptionError("tie: all expects one vocabulary for both sides; use tie: target where they differ.")

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads
