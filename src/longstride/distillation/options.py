"""What can be set when a corpus is distilled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from longstride.contract import OptionError, option
from longstride.contract.options import Options, shown
from longstride.distillation.degenerate import Rules

Compression = Literal["none", "gz", "xz"]
ENDINGS = ("", ".gz", ".xz")


@dataclass(frozen=True)
class ShardRange(Options):
    """Shards `first` to `last` (exclusive; None: to the end), written ``first:last``."""

    first: int = option(0, "The first shard, counted from 0.", least=0, most=10**9)
    last: int | None = option(None, "The shard to stop before (none: after the last).", least=1, most=10**9)

    form = "first:last"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.last is not None and self.last <= self.first:
            raise OptionError(f"expected first:last with first below last, found {self}.")

    @staticmethod
    def from_text(text: str) -> ShardRange:
        """Read ``3:10``, ``3:``, ``:10`` or ``:``."""
        first, colon, last = (part.strip() for part in text.partition(":"))
        if not colon or not all(part == "" or (part.isdecimal() and len(part) < 20) for part in (first, last)):
            raise OptionError(f"expected first:last (shards counted from 0), found {shown(text)}.")
        return ShardRange(int(first or 0), int(last) if last else None)

    def __str__(self) -> str:
        return f"{self.first}:{'' if self.last is None else self.last}"

    def of(self, shards: int) -> range:
        """The shards meant, of so many."""
        return range(min(self.first, shards), shards if self.last is None else min(self.last, shards))


@dataclass(frozen=True)
class DistillOptions(Options):
    """How a corpus is cut, decoded and written. What bounds memory does not count as part of a shard's origin."""

    name: str = option("train", "The outputs are <name>.src and <name>.tgt.")
    keep_all: bool = option(False, "Keep every line, degenerate or not, as validation sets need (still counted).")
    compression: Compression = option("none", "How shards and outputs are compressed.")
    shards: ShardRange = option(
        ShardRange(), "Work on these shards only, so that several processes can share a folder."
    )
    shard_lines: int = option(25_000, "Lines per shard: what an interruption loses at most.", least=1, most=10**9)
    group_lines: int = option(8192, "Most sentences decoded by one call.", least=1, most=10**9)
    capacity: int = option(1024, "Most sentences that stand side by side.", least=1, most=10**6)
    tokens: int = option(
        131_072, "Most tokens, source and longest output together, that stand side by side.", least=1, most=10**9
    )
    longest_source: int = option(
        256, "Longer sources (tokens, EOS counted) are dropped, or cut where all are kept.", least=2, most=10**6
    )
    seed: int = option(1, "For teachers that draw samples; each shard has its own stream.", least=0, most=2**32 - 1)
    rules: Rules = option(Rules(), "When an output counts as degenerate.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.name or "/" in self.name or self.name.startswith("."):
            raise OptionError(f"name expects a plain file name, found {self.name!r}.")

    @property
    def ending(self) -> str:
        """What compressed files end in."""
        return "" if self.compression == "none" else f".{self.compression}"
