"""What makes an interleaved model of a Transformer, as options: each of the paper's variants and ablations is some.

    h=1, c=1   the ordinary Transformer            h=2, c=1   IBDecoder
    h=1, c>1   semi-autoregressive (SA)            h=2, c>1   IBDecoder + SA
    h=4, ...   IMDecoder

Order and positions go by h alone; how much is written, seen and shifted at a time by z = h·c.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Literal

from longstride.contract import OptionError, option
from longstride.contract.options import Options

Order = Literal["side-to-middle", "middle-to-side"]


@dataclass(frozen=True)
class InterleavingOptions(Options):
    """Directions, words per step, and the paper's ablations."""

    width: int = option(help="Width of the Transformer this belongs to.", least=1, most=65536)
    h: int = option(2, "Directions that are written at once: 1, 2 or an even number.", least=1, most=64)
    c: int = option(1, "Words that each direction writes per step.", least=1, most=64)
    order: Order = option(
        "side-to-middle", "Directions run from the ends of a segment to its middle (the paper) or the other way."
    )
    signal: Literal["interleaved", "vanilla"] = option(
        "interleaved", "Positions per direction (the paper's Eq. 7 and 10) or slots counted through (Eq. 5)."
    )
    mask: Literal["relaxed", "vanilla"] = option(
        "relaxed", "Slots see their whole step (the paper's Eq. 4) or only the slots before them."
    )
    independent: bool = option(False, "Directions do not see each other.")
    autoregressive: bool = option(False, "One word per step all the same, in the order of h directions.")
    start: Literal["symbol", "zeros", "learned"] = option(
        "symbol",
        "What the first step reads: the start symbol, zero vectors (the authors' code, and the default in recipes for "
        "steps of several words) or a learned vector per slot.",
    )

    link: int = option(
        0,
        "Rank of a table that ties neighbouring words of a step (0: none, as in the paper); see nn/link.py.",
        least=0,
        most=65536,
    )
    vocabulary: int | None = option(
        None, "With a link: the Transformer's vocabulary; set from it.", least=1, most=10**7
    )
    direction_scale: float = option(
        1.0,
        "Direction embeddings are multiplied by this. New models have the square root of the width, as words do; 1 is "
        "what folders without this option were trained with.",
        above=0,
        most=10**6,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.h > 1 and self.h % 2:
            raise OptionError(f"h expects 1, 2 or an even number of directions, found {self.h}.")
        if self.order == "middle-to-side" and self.h == 1:
            raise OptionError("order: middle-to-side expects two directions or more, found h 1.")
        if self.independent and self.autoregressive:
            raise OptionError("independent expects directions written side by side, found autoregressive: true.")
        if self.autoregressive and self.c > 1:
            raise OptionError(f"autoregressive expects c 1, found {self.c}: it writes one word per step.")
        if self.link and self.c == 1:
            raise OptionError("link expects c 2 or more, found 1: no two words of a step are neighbours.")
        if self.link and self.vocabulary is None:
            raise OptionError("link expects the vocabulary of the Transformer that it belongs to, found none.")

    def completed(self, given: Container[str]) -> InterleavingOptions:
        """For a model that is to be trained: what hangs on other options, where it was not `given`.

        Slots of a first step that all read the start symbol may never be told apart, so they read zero vectors; and
        directions are as loud as words. Options that are read from a model folder stay as they are.
        """
        found = self
        if "start" not in given and self.step > 1:
            found = replace(found, start="zeros")
        if "direction_scale" not in given and self.embeds_directions:
            found = replace(found, direction_scale=self.width**0.5)
        return found

    @property
    def step(self) -> int:
        """Words per step (z); decoder inputs are shifted by as many slots."""
        return 1 if self.autoregressive else self.h * self.c

    @property
    def embeds_directions(self) -> bool:
        """With more than two directions a position is a step and a direction, and the latter has an embedding."""
        return self.h > 2 and self.signal == "interleaved"

    @property
    def ordinary(self) -> bool:
        """Whether this is the ordinary Transformer, which greedy and beam search can run."""
        return self.h == 1 and self.step == 1 and self.start == "symbol"
