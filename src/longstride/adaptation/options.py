"""What can be set when a model is adapted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from longstride.contract import OptionError, option
from longstride.contract.options import Options
from longstride.verification.draft_policy import DraftPolicy

FEWEST, MOST, EVERY = 20, 1_000, 50
"""Lines that are held out: every so many-th, within these bounds"""
HELD_OUT_A_MINUTE, SHORT_HELD_OUT = 100, 64
"""In a short training no more than so many by the minute, or so many if that is more: two batches of 32"""
SENTENCES, FEWEST_SENTENCES = 256, 10
"""The most and the fewest sentences of the race; an interval needs several batches of 32."""
DECODING = 0.5
"""The share of the minutes that decoding may take, to the end of a shard"""
FURTHER = 0.1
"""Where decoding all of the user's lines takes less than this share of the minutes, new lines are made of them: 100,000
lines would be passed over 200 times in 12 minutes on an H200"""


@dataclass(frozen=True)
class AdaptOptions(Options):
    """What decides the result. Where 0 says "by the device" or by minutes (what is around a short training is short
    too), the number is fixed when a run begins, and never by times that were measured."""

    updates: int = option(0, "Updates of the drafter's training (0: as many as fit into minutes).", least=0, most=10**9)
    minutes: float = option(
        20.0,
        "Minutes of training, where updates does not say how many. Decoding before it takes up to half as long; "
        "compiling, choosing lengths, the comparison with greedy search and the race come on top.",
        above=0,
        most=10**5,
    )
    held_out: int = option(
        0,
        "The last so many lines are judged on and never trained on (0: every fiftieth, from 20 to 1,000; by minutes, "
        "no more than 100 for each or 64).",
        least=0,
        most=10**6,
    )
    lines: int = option(
        0,
        "So many other lines are decoded and learnt from, taken evenly (0: as many as are decoded in half of the "
        "minutes, in a random order; all where updates are given).",
        least=0,
        most=10**9,
    )
    shard_lines: int = option(
        0,
        "Lines decoded between two saves (0: 25,000 on a GPU, 500 on a processor).",
        least=0,
        most=10**9,
    )
    side_by_side: int = option(
        0, "Sentences decoded side by side (0: 1,024 on a GPU, 32 on a processor).", least=0, most=10**6
    )
    tokens: int = option(
        0,
        "Padded tokens per update (0: 32,768 on a GPU; on a processor 256, or as many as the longest pair has).",
        least=0,
        most=10**9,
    )
    longest_target: int = option(128, "Longer outputs (tokens, EOS counted) are not learnt from.", least=2, most=10**6)
    layers: int = option(
        0, "Decoder layers of the drafter (0: 2, or 1 for a model with fewer than 4).", least=0, most=1000
    )
    own_encoder_layers: int = option(
        0, "Encoder layers of the drafter's own, on top of the model's (0: none).", least=0, most=1000
    )
    block: int = option(10, "Tokens drafted at once, at most.", least=1, most=1024)
    link: int = option(
        0,
        "Rank of the table that ties neighbouring tokens (0: an eighth of the width, at most 64).",
        least=0,
        most=65536,
    )
    vocabulary: int = option(
        0,
        "So many of the model's ids can be drafted, the most frequent (0: 16,384 of more than 32,768, else all).",
        least=0,
        most=10**7,
    )
    shortlist: int = option(
        32,
        "Words for each source id in the shortlist that trees are drafted from on processors (0: none).",
        least=0,
        most=1024,
    )
    distance: float = option(
        0.0,
        "Share of the loss that is the distance to the model's distribution; the rest: cross-entropy with its output.",
        least=0,
        most=1,
    )
    peak: float = option(
        0.0,
        "Highest learning rate (0: 0.001 at width 512, as one by the root of the width; 0.7 of it where a drafter is "
        "trained on).",
        least=0,
        most=1000,
    )
    begin: Literal["auto", "model"] = option(
        "auto", "First weights: those of the folder's own drafter, if it has one of this shape, or the model's."
    )
    compile: Literal["auto", "none", "layers"] = option("auto", "Compile the layers that are trained (auto: on a GPU).")
    lengths: DraftPolicy | None = option(
        None, "Tokens drafted by how many sentences are decoded side by side, as 1:31tree,8:4,32:0 (none: measured)."
    )
    rows: tuple[int, ...] = option(
        (1, 8, 32, 128), "Numbers of rows that lengths are measured for, as far as there is time.", least=1, most=10**6
    )
    sentences: int = option(
        0,
        "Held-out sentences of the race (0: as many as our own decoders take a minute for, from 10 to 256).",
        least=0,
        most=10**6,
    )
    passes: int = option(2, "How often the race is run.", least=1, most=1000)
    batch_sizes: tuple[int, ...] = option((1, 32), "Batch sizes of the race.", least=1, most=10**6)
    seed: int = option(1, "Seeds first weights, data order and dropout.", least=0, most=2**32 - 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rows", "batch_sizes"):
            if not getattr(self, name):
                raise OptionError(f"{name} expects at least one number, found none.")
        if self.lengths is not None and self.lengths.longest_chain > self.block:
            raise OptionError(f"lengths expects chains of at most block ({self.block}) tokens, found {self.lengths}.")

    def on(self, device: str) -> AdaptOptions:
        """With the numbers that go by the device ("cuda" or "cpu") and the minutes filled in."""
        gpu = device == "cuda"
        return replace(
            self,
            shard_lines=self.shard_lines or (25_000 if gpu else 500),
            side_by_side=self.side_by_side or (1_024 if gpu else 32),
            tokens=self.tokens or (32_768 if gpu else 0),
            compile=("layers" if gpu else "none") if self.compile == "auto" else self.compile,
        )

    def held_out_of(self, lines: int) -> int:
        """How many of so many lines are held out."""
        most = min(MOST, max(SHORT_HELD_OUT, HELD_OUT_A_MINUTE * self._minutes))
        return self.held_out or min(math.ceil(most), max(FEWEST, lines // EVERY))

    @property
    def decoding_seconds(self) -> float:
        """The time that decoding may take."""
        return math.inf if self.lines else 60 * DECODING * self._minutes

    @property
    def further_seconds(self) -> float:
        """The time that decoding may take when it goes on with lines made of the user's own."""
        return 0.0 if self.lines or self.updates else 60 * FURTHER * self.minutes

    @property
    def _minutes(self) -> float:
        """Of training; a number of updates says nothing about time."""
        return math.inf if self.updates else self.minutes
