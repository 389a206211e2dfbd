"""Subtitles in parts: what is said is translated, numbers and times stay."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from longstride.serving.errors import BadRequestError
from longstride.serving.html import Run, Segment, check_number, check_tags, joined, segments
from longstride.serving.markup import Mark

_CUE = re.compile(r"(?m)(^(?:(?:\d+[ \t]*\r?\n)?[^\n]*-->[^\n]*(?:\r?\n|\Z)|[ \t]*[-–—][ \t]*(?=[^\s-])))")
"""A subtitle's number and times, and the dash before what each of several people says"""

MOST_LINES = 100_000


def subtitles(text: str, moving: bool, most: int) -> list[Run | Segment]:
    """Return the parts of a file; refuse more than `most` texts. The lines of a subtitle are one text, or one for each
    speaker. Tags go with their words, as in HTML; character references are no part of the format."""
    check_tags([text])
    if text.count("\n") > MOST_LINES:
        raise BadRequestError(f"Invalid request: the subtitles have more than {MOST_LINES} lines", 413)
    found: list[Run | Segment] = []
    number = 0
    for part in _parts(text, moving):
        found.append(part)
        number += isinstance(part, Segment)
        check_number(number, most)
    return joined(found)


def _parts(text: str, moving: bool) -> Iterator[Run | Segment]:
    for place, part in enumerate(_CUE.split(text)):
        core = " ".join(part.split())
        if place % 2 or not core:
            yield Run(part, False)
            continue
        stripped = part.strip()
        start = part.index(stripped)
        yield Run(part[:start], False)
        if any(sign.isalnum() for sign in core):
            for inner in segments(core.replace("&", "&amp;"), moving):
                if isinstance(inner, Segment):
                    yield Segment(inner.text, [_unescaped(mark) for mark in inner.marks])
                else:
                    yield Run(html.unescape(inner.text), False)
        else:
            yield Run(core, False)
        yield Run(part[start + len(stripped) :], False)


def _unescaped(mark: Mark) -> Mark:
    opening, closing = html.unescape(mark.opening), html.unescape(mark.closing)
    return Mark(mark.start, mark.end, opening, closing, [_unescaped(inner) for inner in mark.inner])
