"""Long texts in pieces that a model can read: sentences, and the white space around them, which is kept.

Joined again, the pieces are the text, character by character.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_BREAK = re.compile(r"(?<!\s)((?:(?![\n\r\v\f\x1c-\x1e\x85\u2028\u2029])\s)*+[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*+)")
"""White space with a line break in it; each run of white space is looked at once"""
_END = re.compile(r"""(?:(?<=[.!?…]["'”’»)\]])|(?<=[.!?…]))(\s+)(?=["'“‘«„¿¡(\[]?[^\W_a-z])|(?<=[。！？])(\s*)(?=\S)""")
"""White space (none in Chinese or Japanese) between a sentence and what may begin another: no small letter"""
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[^\W\d_]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|No|Nr|vs|etc|bzw|z\.\s?B|d\.\s?h|e\.g|i\.e|cf|vgl|Abs|Art|approx|ca)"
    r"\.$"
)
_LONGEST = 16
"""Characters that an abbreviation has at most"""
_GAP = re.compile(r"(\s+)")


@dataclass(frozen=True)
class Piece:
    """A sentence, or another part of a text, with the white space that stands before and behind it."""

    before: str
    text: str
    """without white space at its ends; empty where there is nothing to translate"""
    after: str

    def __str__(self) -> str:
        return self.before + self.text + self.after

    def holding(self, text: str) -> str:
        """Another text in its place."""
        return self.before + text + self.after


def split(text: str, fits: Callable[[str], bool] = lambda line: False) -> list[Piece]:
    """The lines of a text, each whole if it `fits`, else in sentences; a sentence that does not fit is left as it is.

    ``"".join(str(piece) for piece in split(text)) == text``
    """
    pieces: list[Piece] = []
    parts = _BREAK.split(text)
    for line, gap in zip(parts[::2], [*parts[1::2], ""], strict=True):
        core = line.strip()
        sentences = [line] if not core or fits(core) else _sentences(line)
        found = [_piece(sentence) for sentence in sentences]
        found[-1] = Piece(found[-1].before, found[-1].text, found[-1].after + gap)
        pieces += found
    return pieces


def cut(sentence: str, fits: Callable[[str], bool]) -> list[str]:
    """A sentence in parts that fit, cut at white space where there is some, and joined the sentence again."""
    if len(sentence) < 2 or fits(sentence.strip()):
        return [sentence]
    middle = len(sentence) // 2
    gaps = [found.end() for found in _GAP.finditer(sentence) if 0 < found.end() < len(sentence)]
    place = min(gaps, key=lambda gap: abs(gap - middle)) if gaps else middle
    return [*cut(sentence[:place], fits), *cut(sentence[place:], fits)]


def _piece(text: str) -> Piece:
    core = text.strip()
    if not core:
        return Piece(text, "", "")
    start = text.index(core)
    return Piece(text[:start], core, text[start + len(core) :])


def _sentences(line: str) -> list[str]:
    found, begun = [], 0
    for gap in _END.finditer(line):
        if not _ABBREVIATION.search(line[max(begun, gap.start() - _LONGEST) : gap.start()]):
            found.append(line[begun : gap.end()])
            begun = gap.end()
    return [*found, line[begun:]]
