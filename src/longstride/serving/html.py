"""HTML whose text is translated and whose tags stay as they are, character by character.

Tags of paragraphs, tables and the like stay where they are, and what stands between two of them is translated as a
whole. Tags within a sentence (bold, links) go with the words that they stood around, as the decoder's attention says.
What is in a script, a style, code or an element that says ``translate="no"`` (or has the class ``notranslate``) stays
as it is.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from longstride.serving.errors import BadRequestError
from longstride.serving.markup import Mark

_ATTRIBUTES = r"""(?:"[^"]*+"|'[^']*+'|[^'"<>])*+"""
_RAW = ("script", "style")
"""Elements that hold no tags, whatever it looks like: they end where they are closed."""
_WHOLE = "|".join(
    rf"<(?i:{name})(?=[\s/>]){_ATTRIBUTES}(?<!/)>.*?(?:</(?i:{name})(?=[\s/>])[^>]*+(?:>|\Z)|\Z)" for name in _RAW
)
_TAG = re.compile(
    rf"""({_WHOLE}|<!--.*?(?:-->|\Z)|<[!?][^>]*+(?:>|\Z)|"""
    rf"""</?[A-Za-z][^\s/>"'<]*+{_ATTRIBUTES}(?:>|"[^"]*+\Z|'[^']*+\Z))""",
    re.DOTALL,
)
"""Nothing is tried twice (`*+`), and a quote that is not closed goes to the end: no page takes long to be read."""
_NAME = re.compile(r"<(/?)([A-Za-z][^\s/>]*)")
_KEPT = frozenset(("code", "pre", "textarea", "template", "svg", "math", "kbd", "samp", "var"))
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr")
)
_INLINE = frozenset((
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i", "img", "ins",
    "label", "mark", "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "wbr",
))  # fmt: skip
"""Elements within sentences."""
_NO = re.compile(r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*(?:["'][^"']*\b)?notranslate\b""", re.IGNORECASE)
_WRAP = re.compile(r"(?<=\S)[ \t]*(?:\r\n?|\n)[ \t]*(?=\S)")
"""Where a page goes on in the next line, which is no more than a space; empty lines are left as they are"""
ROUNDS = 4
"""Tags without their others are looked for so often; what is left then stays where it is."""
MOST_TAGS, MOST = 300, 200_000
"""Tags within a text, and the same times its characters, beyond which they stay where they are."""
MOST_ELEMENTS = 100_000
"""Tags of all documents of a request."""
_ENDLESS = re.compile(r"&#[0-9]{1000,};?")
"""No character has such a number, and Python refuses to read it."""


@dataclass(frozen=True)
class Run:
    """A part of a document: text to translate, or what stays."""

    text: str
    translated: bool
    tag: str = ""
    """of a tag that may go with words: the element's name, with / before it where it is closed, - where it stands by
    itself"""


def unescape(text: str) -> str:
    """Return a text with the characters that its references stand for."""
    return html.unescape(_ENDLESS.sub("\ufffd", text))


def runs(document: str) -> list[Run]:
    """A document in parts; joined, they are the document."""
    found: list[Run] = []
    kept: list[str] = []  # names of open elements, from the first on that is not to be translated
    opened = Counter[str]()  # the same, counted
    for number, part in enumerate(_TAG.split(document)):
        if number % 2 == 0:
            found.append(Run(part, not kept and any(sign.isalnum() for sign in unescape(part))))
            continue
        if (name := _NAME.match(part)) is None:
            found.append(Run(part, False, "-" if part.startswith("<!--") and not kept else ""))
            continue
        element, closing = name[2].lower(), bool(name[1])
        alone = element in _VOID or part.endswith("/>")
        tag = "" if kept or element not in _INLINE else "/" + element if closing else "-" if alone else element
        if closing:
            while opened[element]:
                opened[kept[-1]] -= 1
                if kept.pop() == element:
                    break
        elif not alone and element not in _RAW and (kept or element in _KEPT or _NO.search(part)):
            kept.append(element)
            opened[element] += 1
            tag = ""
        found.append(Run(part, False, tag))
    return [run for run in found if run.text]


def html_words(documents: Sequence[str]) -> list[str]:
    """Return the text of each document that is to be translated, which tells its language."""
    check_tags(documents)
    return [" ".join(unescape(run.text) for run in runs(document) if run.translated) for document in documents]


@dataclass(frozen=True)
class Segment:
    """What is translated as a whole: a text, and the tags in it."""

    text: str
    marks: list[Mark]


def segments(document: str, moving: bool = True) -> list[Run | Segment]:
    """A document in what stays and what is translated; `moving`: tags within sentences may go with their words."""
    found: list[Run | Segment] = []
    parts = [run if moving else replace(run, tag="") for run in runs(document)]
    for _ in range(ROUNDS):
        groups = _groups(parts)
        if not (lost := {number for group in groups for number in _unmatched(parts, group)}):
            break
        parts = [replace(run, tag="") if number in lost else run for number, run in enumerate(parts)]
    for group in _groups(parts):
        some = [parts[number] for number in group]
        if not _unmatched(parts, group) and any(run.translated for run in some):
            first = next(number for number, run in enumerate(some) if run.tag or not _blank(run))
            last = len(some) - next(number for number, run in enumerate(some[::-1]) if run.tag or not _blank(run))
            segment, tags = _segment(some[first:last]), sum(bool(run.tag) for run in some)
            if tags <= MOST_TAGS and tags * len(segment.text) <= MOST:
                found += [*some[:first], segment, *some[last:]]
                continue
        found += [_segment([run]) if run.translated else run for run in some]
    return joined(found)


def joined(parts: Iterable[Run | Segment]) -> list[Run | Segment]:
    """With one run for all neighbours that stay."""
    found: list[Run | Segment] = []
    stays: list[str] = []
    for part in [*parts, None]:
        if isinstance(part, Run):
            stays.append(part.text)
            continue
        found += [Run("".join(stays), False)] if stays else []
        stays = []
        found += [part] if part is not None else []
    return found


def filled(parts: Iterable[Run | Segment], texts: Iterator[str]) -> str:
    """Return a document of these parts, with the next of `texts`, as HTML, in the place of each segment."""
    return "".join(next(texts) if isinstance(part, Segment) else part.text for part in parts)


def parsed(documents: Sequence[str], moving: bool, most: int) -> list[list[Run | Segment]]:
    """Segments of documents from strangers: `most` texts in all, and a bounded number of tags."""
    check_tags(documents)
    found = [segments(document, moving) for document in documents]
    check_number(sum(isinstance(part, Segment) for parts in found for part in parts), most)
    return found


def check_tags(documents: Sequence[str]) -> None:
    """Refuse more tags than can be read in a few seconds."""
    if sum(document.count("<") for document in documents) > MOST_ELEMENTS:
        raise BadRequestError(f"Invalid request: the text has more than {MOST_ELEMENTS} tags", 413)


def check_number(texts: int, most: int) -> None:
    """Refuse more texts than may wait: each is a sentence or more."""
    if texts > most:
        raise BadRequestError(
            f"Invalid request: {texts} sentences, and at most {most} may wait; send fewer at a time.", 413
        )


def _groups(parts: Sequence[Run]) -> list[list[int]]:
    """Numbers of texts and tags that belong together; what stays where it is stands alone."""
    groups: list[list[int]] = []
    together = False
    for number, run in enumerate(parts):
        movable = bool(run.tag) or run.translated or not run.text.startswith("<")
        if movable and together:
            groups[-1].append(number)
        else:
            groups.append([number])
        together = movable
    return groups


def _unmatched(parts: Sequence[Run], group: Sequence[int]) -> list[int]:
    """Tags of a group that are not opened and closed in it, one within another."""
    if not any(parts[number].tag for number in group):
        return []
    stack: list[int] = []
    lost: list[int] = []
    opened = Counter[str]()  # names in the stack
    for number in group:
        tag = parts[number].tag
        if not tag or tag == "-":
            continue
        if not tag.startswith("/"):
            stack.append(number)
            opened[tag] += 1
        elif opened[tag[1:]]:
            while (name := parts[stack[-1]].tag) != tag[1:]:
                opened[name] -= 1
                lost.append(stack.pop())
            opened[name] -= 1
            stack.pop()
        else:
            lost.append(number)
    return [*lost, *stack]


def _blank(run: Run) -> bool:
    return not unescape(run.text).strip()


def _segment(some: Sequence[Run]) -> Segment:
    """Of texts and tags that are all opened and closed."""
    texts: list[str] = []
    length = 0
    marks: list[list[Mark]] = [[]]
    for run in some:
        if not run.tag:
            texts.append(unescape(run.text))
            length += len(texts[-1])
        elif run.tag == "-":
            marks[-1].append(Mark(length, length, run.text))
        elif run.tag.startswith("/"):
            inner = marks.pop()
            marks[-1][-1].end, marks[-1][-1].closing, marks[-1][-1].inner = length, run.text, inner
        else:
            marks[-1].append(Mark(length, length, run.text))
            marks.append([])
    return _unwrapped(Segment("".join(texts), marks[0]))


def _unwrapped(segment: Segment) -> Segment:
    """With spaces for line breaks within it: what a wrapped line says is half a sentence."""
    if not _WRAP.search(segment.text):
        return segment
    left = [1] * len(segment.text)
    for gap in _WRAP.finditer(segment.text):
        left[gap.start() + 1 : gap.end()] = [0] * (len(gap[0]) - 1)
    places = [0, *accumulate(left)]
    waiting = list(segment.marks)
    while waiting:
        mark = waiting.pop()
        mark.start, mark.end = places[mark.start], places[mark.end]
        waiting += mark.inner
    return Segment(_WRAP.sub(" ", segment.text), segment.marks)
