"""Ids that mean something to the machinery, and nothing to a reader: those of a model, and our own vocabularies'."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from longstride.contract.errors import OptionError
from longstride.contract.options import Options, option

PAD = 0
UNK = 1
START = 2
EOS = 3
MASK = 4

RESERVED = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
"""The first five pieces of our own vocabularies. Changing one would void every model that was trained with them."""

_MOST = 10**7


@dataclass(frozen=True)
class SpecialIds(Options):
    """The special ids of one model; defaults: those of our own vocabularies."""

    pad: int = option(PAD, "Fills rows up.", least=0, most=_MOST)
    unk: int | None = option(
        UNK, "Stands for what the vocabulary does not have; none: it has no such id.", least=0, most=_MOST
    )
    start: int = option(START, "The decoder's first input.", least=0, most=_MOST)
    eos: int = option(EOS, "Ends every sentence.", least=0, most=_MOST)
    mask: int | None = option(
        MASK, "Stands for tokens yet to be drafted; none: the vocabulary has no such id.", least=0, most=_MOST
    )
    suppress: tuple[int, ...] | None = option(
        None,
        "Ids that no decoder may emit (none: pad, start and mask, but for the one that is eos).",
        least=0,
        most=_MOST,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eos in self.never_generated:
            raise OptionError(f"suppress may not hold eos, {self.eos}: no output could end.")

    @cached_property
    def never_generated(self) -> tuple[int, ...]:
        """Ids that no decoder may emit, in order."""
        default = {self.pad, self.start, self.mask} - {self.eos}
        return tuple(sorted(each for each in (default if self.suppress is None else self.suppress) if each is not None))

    @property
    def largest(self) -> int:
        """The largest of all: a vocabulary has more ids than this."""
        named = (self.pad, self.unk, self.start, self.eos, self.mask)
        return max(each for each in (*named, *self.never_generated) if each is not None)


DEFAULT_IDS = SpecialIds()
"""Those of our own vocabularies."""
