"""Texts of requests in pieces, each with its ids, and joined again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longstride.text.sentences import Piece, pieces
from longstride.translator import Translator

LONG = 100
"""Tokens of a line that is split into sentences though its model reads texts whole."""


@dataclass(frozen=True)
class Work:
    """A text in pieces; those with something to translate have ids. Pieces are lines, as a glossary reads them."""

    pieces: list[Piece]
    ids: list[list[int] | None]

    @property
    def full(self) -> list[list[int]]:
        """The ids of pieces that are translated."""
        return [ids for ids in self.ids if ids is not None]

    @property
    def lines(self) -> list[str]:
        """The texts of pieces that are translated."""
        return [piece.text for piece, ids in zip(self.pieces, self.ids, strict=True) if ids is not None]

    def joined(self, outputs: Sequence[str]) -> str:
        """With an output in the place of every piece that has ids."""
        found = iter(outputs)
        return "".join(
            piece.holding(next(found) if ids is not None else piece.text)
            for piece, ids in zip(self.pieces, self.ids, strict=True)
        )


def prepared(translator: Translator, texts: Sequence[str], split_above: int | None) -> list[Work]:
    """Split texts into pieces: lines of more than `split_above` tokens into sentences (None: every line, or where a
    folder reads texts whole those of more than LONG)."""
    tokenizer = translator.source_tokenizer
    above = split_above
    if above is None:
        above = 0 if translator.folder.config.sentences else LONG

    def whole(line: str) -> bool:
        if not above:
            return False
        readable = translator.readable(line)
        return len(line) <= above or len(tokenizer.encode_many([readable], threads=1)[0]) <= above

    work = []
    for text in texts:
        found = pieces(text, whole, translator.fits)
        lines = [piece.text for piece in found if piece.text]
        encoded = iter(translator.encode(lines, warn=lambda message: None))
        work.append(Work(found, [next(encoded) if piece.text else None for piece in found]))
    return work
