"""The shape of a drafter, as options. Defaults: the paper's base size, with a prefix that can be cached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from longstride.contract import DEFAULT_IDS, RESERVED, OptionError, SpecialIds, option
from longstride.contract.options import Options
from longstride.nn.options import TransformerOptions
from longstride.systems.draft_verify.kept import reserved_ids


@dataclass(frozen=True)
class DrafterOptions(Options):
    """Architecture of a non-autoregressive drafter."""

    vocabulary: int = option(
        help="Vocabulary size of both sides, the five reserved ids included: the verifier's.", least=1, most=10**7
    )
    kept: int | None = option(
        None,
        "Ids of its own, five reserved ones and as many of the verifier's; no others are drafted (none: the verifier's "
        "ids as they are); see kept.py.",
        least=len(RESERVED),
        most=10**7,
    )
    block: int = option(25, "Tokens drafted at once (k).", least=1, most=1024)
    width: int = option(512, "Model width d.", least=1, most=65536)
    feed_forward: int = option(2048, "Hidden width of the feed-forward layers.", least=1, most=2**20)
    heads: int = option(8, "Attention heads; must divide the width.", least=1, most=65536)
    encoder: Literal["own", "shared", "partial"] = option(
        "own", "An encoder of its own (the paper), the verifier's output, or own layers on top of the verifier's."
    )
    encoder_layers: int = option(6, "Own encoder layers (own and partial).", least=1, most=1000)
    shared_layers: int | None = option(
        None,
        "With partial: layers of the verifier's encoder below the own ones (none: all of them).",
        least=1,
        most=1000,
    )
    verifier_width: int | None = option(
        None, "With shared and partial: the verifier's width; set from the base.", least=1, most=65536
    )
    decoder_layers: int = option(6, "Decoder depth.", least=1, most=1000)
    prefix: Literal["causal", "full"] = option(
        "causal", "Prefix slots see earlier ones alone, so that they can be cached, or the whole canvas (the paper)."
    )
    soft_copy: bool = option(True, "Feed mask slots a mix of source embeddings that their position chooses.")
    link: int = option(
        0,
        "Rank of a table that ties neighbouring tokens of a draft (0: none, as in the paper); see nn/link.py.",
        least=0,
        most=65536,
    )
    positions: Literal["learned", "sinusoidal"] = option("learned", "Kind of position embedding.")
    add_positions: Literal["every", "first"] = option(
        "every", "Add positions before every decoder layer (the authors' code) or before the first."
    )
    scale_embeddings: bool = option(False, "Multiply token embeddings by the square root of the width.")
    norm: Literal["post", "pre"] = option("post", "Layer norm after each residual sum or before each block.")
    activation: Literal["relu", "gelu", "silu"] = option("gelu", "Activation of the feed-forward layers.")
    longest: int = option(
        1024, "The longest text, EOS counted; there are so many positions and a block more.", least=1, most=2**20
    )
    dropout: float = option(
        0.1, "Dropout on embeddings and on each block's output, before the residual sum.", least=0, below=1
    )
    attention_dropout: float = option(0.0, "Dropout on attention weights.", least=0, below=1)
    activation_dropout: float = option(0.0, "Dropout after the feed-forward activation.", least=0, below=1)
    begin: Literal["fresh", "verifier"] = option(
        "fresh", "First weights: random, or the verifier's wherever it has one of the same name and shape."
    )
    special: SpecialIds = option(DEFAULT_IDS, "Its special ids: the verifier's.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shared_layers is not None and self.encoder != "partial":
            raise OptionError(f"shared_layers expects encoder: partial, found {self.encoder}.")
        if self.kept is not None:
            self._check_kept(self.kept)
        self.layers()  # checks all the rest

    def _check_kept(self, kept: int) -> None:
        if self.special.largest >= self.vocabulary:
            raise OptionError(
                f"vocabulary expects more ids than the largest special one, {self.special.largest}, "
                f"found {self.vocabulary}."
            )
        most = self.vocabulary - len({*reserved_ids(self.special)}) + len(RESERVED)
        if kept > most:
            raise OptionError(f"kept expects at most {most} ids with a vocabulary of {self.vocabulary}, found {kept}.")

    @property
    def own_vocabulary(self) -> int:
        """How many ids it drafts with."""
        return self.kept or self.vocabulary

    @property
    def own_special(self) -> SpecialIds:
        """The special ones among them."""
        return self.special if self.kept is None else DEFAULT_IDS

    def layers(self) -> TransformerOptions:
        """The same as the shared Transformer's layers want it."""
        return TransformerOptions(
            vocabulary=self.own_vocabulary,
            width=self.width,
            feed_forward=self.feed_forward,
            heads=self.heads,
            encoder_layers=self.encoder_layers,
            decoder_layers=self.decoder_layers,
            norm=self.norm,
            activation=self.activation,
            positions=self.positions,
            longest=self.longest,
            scale_embeddings=self.scale_embeddings,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            activation_dropout=self.activation_dropout,
            special=self.own_special,
        )
