"""What can be set when a corpus is distilled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from longstride.contract import OptionError, option
from longstride.contract.options import at_least
from longstride.distillation.degenerate import Rules

Compression = Literal["none", "gz", "xz"]
ENDINGS = ("", ".gz", ".xz")


@dataclass(frozen=True)
class ShardRange:
    """Shards `first` to `last` (exclusive; None: to the end), written ``first:last``."""

    first: int = 0
    last: int | None = None

    form = "first:last"

    def __post_init__(self) -> None:
        if self.first < 0 or (self.last is not None and self.last <= self.first):
            raise OptionError(f"expected first:last with first below last, found {self}.")

    @staticmethod
    def from_text(text: str) -> ShardRange:
        """Read ``3:10``, ``3:``, ``:10`` or ``:``."""
        first, colon, last = (part.strip() for part in text.partition(":"))
        if not colon or not all(part == "" or part.isdecimal() for part in (first, last)):
            raise OptionError(f"expected first:last (shards counted from 0), found {text!r}.")
        return ShardRange(int(first or 0), int(last) if last else None)

    def __str__(self) -> str:
        return f"{self.first}:{'' if self.last is None else self.last}"

    def of(self, shards: int) -> range:
        """The shards meant, of so many."""
        return range(min(self.first, shards), shards if self.last is None else min(self.last, shards))


@dataclass(frozen=True)
class DistillOptions:
    """How a corpus is cut, decoded and written. What bounds memory does not count as part of a shard's origin."""

    name: str = option("train", "The outputs are <name>.src and <name>.tgt.")
    keep_all: bool = option(False, "Keep every line, degenerate or not, as validation sets need (still counted).")
    compression: Compression = option("none", "How shards and outputs are compressed.")
    shards: ShardRange = option(
        ShardRange(), "Work on these shards only, so that several processes can share a folder."
    )
    shard_lines: int = option(25_000, "Lines per shard: what an interruption loses at most.")
    group_lines: int = option(8192, "Most sentences decoded by one call.")
    capacity: int = option(1024, "Most sentences that stand side by side.")
    tokens: int = option(131_072, "Most tokens, source and longest output together, that stand side by side.")
    longest_source: int = option(256, "Longer sources (tokens, EOS counted) are dropped, or cut where all are kept.")
    seed: int = option(1, "For teachers that draw samples; each shard has its own stream.")
    rules: Rules = option(Rules(), "When an output counts as degenerate.")

    def __post_init__(self) -> None:
        at_least(1, self, "shard_lines", "group_lines", "capacity", "tokens")
        at_least(2, self, "longest_source")
        if not self.name or "/" in self.name or self.name.startswith("."):
            raise OptionError(f"name expects a plain file name, found {self.name!r}.")

    @property
    def ending(self) -> str:
        """What compressed files end in."""
        return "" if self.compression == "none" else f".{self.compression}"
