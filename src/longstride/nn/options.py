"""The shape of a Transformer, as options. Defaults: the papers' base size, a Marian model weight for weight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from longstride.contract import DEFAULT_IDS, OptionError, SpecialIds, option
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
    encoder_feed_forward: int | None = option(
        None, "The encoder's feed_forward where it differs from the decoder's.", least=1, most=2**20
    )
    encoder_heads: int | None = option(
        None, "The encoder's heads where they differ from the decoder's.", least=1, most=65536
    )
    encoder_layers: int = option(6, "Encoder depth.", least=1, most=1000)
    decoder_layers: int = option(6, "Decoder depth.", least=1, most=1000)
    head: int | None = option(
        None, "Width of an attention head (default: the width shared among the heads).", least=1, most=65536
    )
    key_value_heads: int | None = option(
        None, "Heads of keys and values, each for as many heads of queries (default: as many).", least=1, most=65536
    )
    norm: Literal["post", "pre"] = option("post", "Norms after each residual sum (post) or before each block (pre).")
    norm_type: Literal["layer", "rms"] = option(
        "layer", "Layer norm, or division by the root mean square alone, without a bias (rms)."
    )
    norm_eps: float = option(1e-5, "Added to the variance that a norm divides by.", above=0, below=1)
    embedding_norm: bool = option(False, "Normalise embeddings before the first layer.")
    activation: Literal["relu", "gelu", "gelu-tanh", "silu"] = option("relu", "Activation of the feed-forward layers.")
    gated: bool = option(False, "Feed-forward layers multiply the activated product by a second one.")
    bias: bool = option(True, "Products inside layers have biases.")
    scale_attention: bool = option(True, "Divide attention scores by the square root of a head's width.")
    positions: Literal["sinusoidal", "learned", "relative", "picture"] = option(
        "sinusoidal",
        "Embeddings of positions, of the rows, columns and channels of a picture's values (picture), or a bias of "
        "attention scores by distance (relative).",
    )
    picture: int = option(32, "With positions: picture, pixels in a row of the output.", least=1, most=4096)
    picture_scale: int = option(
        4,
        "With positions: picture, how many times as many pixels a row of the output has as one of the source.",
        least=1,
        most=4096,
    )
    local_attention: int = option(
        0,
        "The decoder's slots, in blocks of so many, see their own block up to themselves and the block before it, "
        "instead of everything before them (0).",
        least=0,
        most=2**20,
    )
    sinusoid: Literal["marian", "fairseq"] = option(
        "marian", "The slowest sinusoid has a rate just above 1/10000 (marian) or of exactly that (fairseq)."
    )
    position_offset: int = option(0, "The first position's number in the table.", least=0, most=1024)
    relative_buckets: int = option(32, "Biases per head that distances share.", least=4, most=4096)
    relative_distance: int = option(128, "Distances from here on share one bias.", least=4, most=2**20)
    longest: int = option(
        1024, "Positions run from -longest to longest (sinusoidal) or from 0 (learned).", least=1, most=2**20
    )
    tie: Literal["all", "target", "none"] = option(
        "all", "Share source, target and output embeddings (all), target and output (target), or nothing."
    )
    scale_embeddings: bool = option(True, "Multiply token embeddings by the square root of the width.")
    logits_bias: bool = option(False, "Every target id has a bias of its own.")
    scale_logits: bool = option(False, "Divide what is projected by the square root of the width.")
    dropout: float = option(
        0.1, "Dropout on embeddings and on each block's output, before the residual sum.", least=0, below=1
    )
    attention_dropout: float = option(0.0, "Dropout on attention weights.", least=0, below=1)
    activation_dropout: float = option(0.0, "Dropout after the feed-forward activation.", least=0, below=1)
    special: SpecialIds = option(DEFAULT_IDS, "Its special ids, which model folders tell once for all parts.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, heads in (("heads", self.heads), ("encoder_heads", self.encoder_heads or self.heads)):
            if self.head is None and self.width % heads:
                raise OptionError(f"{name} expects a divisor of the width {self.width}, found {heads}.")
            if heads % (self.key_value_heads or heads):
                raise OptionError(f"key_value_heads expects a divisor of {heads}, found {self.key_value_heads}.")
        if self.positions == "relative" and self.relative_distance <= self.relative_buckets // 2:
            # Half of the buckets are for one distance each; the others have to have some left.
            raise OptionError(
                f"relative_distance expects more than half of the {self.relative_buckets} relative_buckets, "
                f"found {self.relative_distance}."
            )
        if self.positions == "picture" and self.width % 16:
            raise OptionError(f"positions: picture expects a width that is a multiple of 16, found {self.width}.")
        if self.positions == "picture" and self.picture % self.picture_scale:
            raise OptionError(f"picture_scale expects a divisor of picture {self.picture}, found {self.picture_scale}.")
        if self.width % 2:
            raise OptionError(f"width expects an even number, found {self.width}.")
        if self.tie == "all" and self.source_vocabulary not in (None, self.vocabulary):
            raise OptionError("tie: all expects one vocabulary for both sides; use tie: target where they differ.")

    @cached_property
    def of_encoder(self) -> TransformerOptions:
        """The same with the encoder's sizes of layers as those of both sides."""
        return replace(
            self,
            heads=self.encoder_heads or self.heads,
            feed_forward=self.encoder_feed_forward or self.feed_forward,
            encoder_heads=None,
            encoder_feed_forward=None,
        )

    def refuse_beyond_marian(self, what: str) -> None:
        """For decoders that are made for absolute positions, attention to all of them and plain logits alone."""
        self.refuse_pictures(what)
        if self.positions == "relative":
            raise OptionError(f"{what} expects positions sinusoidal or learned, found relative.")
        if self.logits_bias:
            raise OptionError(f"{what} expects no logits_bias, found one.")

    def refuse_pictures(self, what: str) -> None:
        """For what does not know local attention, nor positions of pictures."""
        if self.positions == "picture":
            raise OptionError(f"{what} expects positions sinusoidal or learned, found picture.")
        if self.local_attention:
            raise OptionError(f"{what} expects attention to all slots, found local_attention={self.local_attention}.")

    @cached_property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.head or self.width // self.heads
