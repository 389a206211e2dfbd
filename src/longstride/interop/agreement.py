"""Whether an exported model still says the same: the same sentences by our greedy search and by the other library's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longstride.contract import Source
from longstride.interop.peers import Peer
from longstride.interop.subject import GREEDY
from longstride.translator import Translator

SENTENCES = (
    "Good morning!",
    "We met three old friends in the garden yesterday.",
    "The house is small, but it has a large window.",
    "Can you tell me where the station is?",
    "She bought twenty-four red apples and two loaves of bread on the market.",
    "No one knew why the train was late, and nobody asked.",
    "1, 2, 3: that is how it begins.",
    "Yes.",
)
"""What an export is checked with where nothing else is given; every vocabulary reads something in them."""


@dataclass(frozen=True)
class Agreement:
    """How many outputs are the same, id by id."""

    compared: int
    differing: tuple[int, ...]
    """places of those that are not"""

    def __str__(self) -> str:
        same = self.compared - len(self.differing)
        if not self.differing:
            return f"{same} of {self.compared} outputs are the same, id by id"
        return (
            f"{same} of {self.compared} outputs are the same, id by id; the first that is not: {self.differing[0] + 1}"
        )


def compare(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> Agreement:
    """Count rows of ids that differ."""
    pairs = list(zip(ours, theirs, strict=True))
    return Agreement(len(pairs), tuple(place for place, (one, other) in enumerate(pairs) if list(one) != list(other)))


def agreement(translator: Translator, peer: Peer, lines: Sequence[str]) -> Agreement:
    """Decode lines by our greedy search and by the peer; empty lines are nothing to compare."""
    decoder, limits = translator.decoder(GREEDY)
    ids = translator.encode([line for line in lines if line.strip()], warn=lambda said: None)
    source = Source.of(ids)
    return compare(decoder.decode(source, limits).tokens, peer.decode(source, limits).tokens)
