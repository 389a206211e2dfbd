"""Which sentence pairs are kept for training, by length alone, and a count of what was left out and why.

Lengths count the end-of-sentence id, as everywhere in corpora and batches. Knows neither text nor files.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from longstride.contract import OptionError, option
from longstride.contract.options import Options


@dataclass(frozen=True)
class FilterReport:
    """How many pairs were seen, kept, and left out for which reason; a pair counts under the first that applies."""

    seen: int = 0
    kept: int = 0
    too_short: int = 0
    too_long: int = 0
    out_of_ratio: int = 0
    cut: int = 0
    """of those kept, how many have lost the end of their source"""

    def __add__(self, other: FilterReport) -> FilterReport:
        return FilterReport(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    @property
    def sentence(self) -> str:
        """The report in words, e.g. ``kept 98 of 100 pairs (98.0 %); left out 2: 2 too long``."""
        share = 100 * self.kept / self.seen if self.seen else 100.0
        kept = f"kept {self.kept:,} of {self.seen:,} pairs ({share:.1f} %)"
        reasons = {"too short": self.too_short, "too long": self.too_long, "out of ratio": self.out_of_ratio}
        named = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count)
        left_out = f"; left out {self.seen - self.kept:,}: {named}" if named else ""
        return f"{kept}{left_out}{f'; {self.cut:,} sources cut' if self.cut else ''}"


@dataclass(frozen=True)
class LengthFilter(Options):
    """Pairs to keep, by their lengths in tokens (the end-of-sentence id counted)."""

    min_tokens: int = option(
        2, "Pairs with fewer tokens on a side are left out; 2 leaves out empty lines.", least=1, most=10**6
    )
    max_tokens: int = option(
        256, "Pairs with more tokens on a side are left out; 0 leaves out none.", least=0, most=10**6
    )
    max_ratio: float = option(
        0.0, "Pairs with one side this many times longer are left out; 0 leaves out none.", least=0, most=10**6
    )
    cut_source: int = option(
        0,
        "Sources with more tokens lose their end, before anything is left out; 0 cuts none. For documents, whose "
        "beginning says most; give the model as many positions (model.longest), and it cuts alike when it decodes.",
        least=0,
        most=10**6,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_tokens and self.max_tokens < self.min_tokens:
            raise OptionError(
                f"max_tokens expects 0 or at least {self.min_tokens} (min_tokens), found {self.max_tokens}."
            )
        if self.cut_source and self.cut_source < self.min_tokens:
            raise OptionError(
                f"cut_source expects 0 or at least {self.min_tokens} (min_tokens), found {self.cut_source}."
            )
        if self.max_ratio and self.max_ratio < 1:
            raise OptionError(f"max_ratio expects 0 or at least 1, found {self.max_ratio}.")

    def apply(
        self, source_lengths: npt.NDArray[np.int64], target_lengths: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], FilterReport]:
        """Indices of the pairs to keep, in order, and the report. Lengths: [pairs], of sources that may be cut yet."""
        too_much = source_lengths > self.cut_source if self.cut_source else np.zeros_like(source_lengths, dtype=bool)
        source_lengths = np.where(too_much, self.cut_source, source_lengths)
        shorter = np.minimum(source_lengths, target_lengths)
        longer = np.maximum(source_lengths, target_lengths)
        too_short = shorter < self.min_tokens
        too_long = ~too_short & (longer > self.max_tokens if self.max_tokens else np.zeros_like(too_short))
        lopsided = longer > shorter * self.max_ratio if self.max_ratio else np.zeros_like(too_short)
        out_of_ratio = ~too_short & ~too_long & lopsided
        kept = np.flatnonzero(~(too_short | too_long | out_of_ratio)).astype(np.int64)
        report = FilterReport(
            len(longer),
            len(kept),
            int(too_short.sum()),
            int(too_long.sum()),
            int(out_of_ratio.sum()),
            int(too_much[kept].sum()),
        )
        return kept, report
