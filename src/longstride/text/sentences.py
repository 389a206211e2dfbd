"""Long texts in pieces that a model can read: sentences, and the white space around them, which is kept.

Joined again, the pieces are the text, character by character. A word that is no word of any language (a file in base64,
a million times the same letter) stands between sentences, as white space does: it is kept, and nobody translates it. So
is a line or sentence without a letter or digit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

_BREAK = re.compile(r"(?<!\s)((?:(?![\n\r\v\f\x1c-\x1e\x85\u2028\u2029])\s)*+[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*+)")
"""White space with a line break in it; each run of white space is looked at once"""
_END = re.compile(
    r"""(?:(?<=[.!?…]["'”’»)\]])|(?<=[.!?…]))(\s+)(?=["'“‘«„¿¡(\[]?[^\W_a-z])"""
    r"""|(?<=[。！？])(\s*)(?=[^\s。！？…」』）】》〉”’"')\]])"""
)
"""White space (none in Chinese or Japanese) between a sentence and what may begin another: no small letter of a to z,
no further end, and nothing that closes quotes or brackets"""
_OPENING = "\"'“‘«„¿¡(["
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[^\W\d_]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|No|Nr|vs|etc|bzw|z\.\s?B|d\.\s?h|e\.g|i\.e|cf|vgl|Abs|Art|approx|ca)"
    r"\.$"
)
_NUMBERED = re.compile(r"\s*\d{1,3}\.$")
"""What a point of a list begins with: 5. A new one"""
_LONGEST = 16
"""Characters that an abbreviation has at most"""
_GAP = re.compile(r"(\s+)")
LONGEST_WORD = 5000
"""Characters without white space that are still cut into parts, as writing without spaces has to be"""


@dataclass(frozen=True)
class Piece:
    """A sentence, or another part of a text, with what stands before and behind it and is kept: white space."""

    before: str
    text: str
    """without white space at its ends; empty where there is nothing to translate"""
    after: str

    def __str__(self) -> str:
        return self.before + self.text + self.after

    def holding(self, text: str) -> str:
        """Another text in its place."""
        return self.before + text + self.after


def has_words(text: str) -> bool:
    """Return whether the text has a letter or digit; without one it is not translated."""
    return any(map(str.isalnum, text))


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


def pieces(text: str, whole: Callable[[str], bool], fits: Callable[[str], bool]) -> list[Piece]:
    """A text's lines that may stay `whole`, sentences of the others, and parts of those that do not fit a model."""
    return [part for piece in split(text, whole) for part in _parts(piece, fits)]


def alternating(text: str, fits: Callable[[str], bool]) -> list[str]:
    """The sentences of a text at even places, at odd ones what is kept between them; joined they are the text."""
    found = ["", ""]
    for piece in pieces(text, lambda line: False, fits):
        found[-1] += piece.before
        found += [piece.text, piece.after]
    begun = 0 if found[1] else 2
    return [*found[begun:], ""] if found[-1] else found[begun:-1]


def cut(sentence: str, fits: Callable[[str], bool]) -> list[str]:
    """A sentence in parts that fit, cut at white space where there is some, and joined the sentence again.

    A word of more than `LONGEST_WORD` characters stays whole, whether it fits or not.
    """
    if len(sentence) < 2 or fits(sentence.strip()):
        return [sentence]
    middle = len(sentence) // 2
    gaps = [found.end() for found in _GAP.finditer(sentence) if 0 < found.end() < len(sentence)]
    if not gaps and len(sentence.strip()) > LONGEST_WORD:
        return [sentence]
    place = min(gaps, key=lambda gap: abs(gap - middle)) if gaps else middle
    return [*cut(sentence[:place], fits), *cut(sentence[place:], fits)]


def _parts(piece: Piece, fits: Callable[[str], bool]) -> list[Piece]:
    """A piece that is too long for a model in several."""
    parts = []
    for part in cut(piece.text, fits):
        text = part.rstrip()
        no_word = not has_words(text) or (len(text) > LONGEST_WORD and not fits(text))
        parts.append(Piece(part, "", "") if no_word else Piece("", text, part[len(text) :]))
    parts[0] = replace(parts[0], before=piece.before + parts[0].before)
    parts[-1] = replace(parts[-1], after=parts[-1].after + piece.after)
    return parts


def _piece(text: str) -> Piece:
    core = text.strip()
    if not core:
        return Piece(text, "", "")
    start = text.index(core)
    return Piece(text[:start], core, text[start + len(core) :])


def _sentences(line: str) -> list[str]:
    found, begun = [], 0
    for gap in _END.finditer(line):
        before = line[max(begun, gap.start() - _LONGEST) : gap.start()]
        first = line[gap.end() : gap.end() + 2].lstrip(_OPENING)[:1]
        goes_on = gap[1] is not None and first.islower()  # a small letter that is none of a to z
        if not goes_on and not _ABBREVIATION.search(before) and not (begun == 0 and _NUMBERED.fullmatch(before)):
            found.append(line[begun : gap.end()])
            begun = gap.end()
    return [*found, line[begun:]]
