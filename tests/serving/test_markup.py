"""Tags in translations: none is lost or doubled, each is closed within the element that it was in, and the text is
what it is without them."""

from __future__ import annotations

import asyncio
import html
import re
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.serving import documents
from longstride.serving.alignment import ROWS, AlignedWords, Line, word_spans
from longstride.serving.documents import translate_html
from longstride.serving.errors import CancelledError
from longstride.serving.html import Run, Segment, runs, segments
from longstride.serving.markup import Mark, marked, needs_words
from longstride.serving.service import Service, TranslatedPiece
from longstride.text.sentences import Piece
from longstride.translator import Translator
from tests.serving.conftest import Served

TAG = re.compile(r"<[^<>]*>")
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class From:
    """A word that comes from one character of the source."""

    start: int
    end: int
    source: int

    @property
    def spans(self) -> list[tuple[int, int]]:
        return [(self.start, self.end)]

    def within(self, start: int, end: int) -> list[float]:
        return [float(start <= self.source < end)]


@st.composite
def trees(draw: st.DrawFn, start: int, end: int, depth: int = 3) -> list[Mark]:
    """Marks between two characters, some within others, some with nothing in them."""
    cuts = sorted(draw(st.lists(st.integers(start, end), max_size=4 if depth else 0)))
    marks = []
    for first, last in zip(cuts[::2], cuts[1::2], strict=False):
        alone = first == last and draw(st.booleans())
        inner = [] if alone else draw(trees(first, last, depth - 1))
        marks.append(Mark(first, last, "", "" if alone else "x", inner))
    return marks


def named(marks: list[Mark], number: int = 0) -> int:
    """Every mark with a name of its own."""
    for mark in marks:
        mark.opening, mark.closing = f"<t{number}>", f"</t{number}>" if mark.closing else ""
        number = named(mark.inner, number + 1)
    return number


def parents(marks: list[Mark], parent: str = "") -> dict[str, str]:
    found = {}
    for mark in marks:
        found.update({mark.opening: parent, **parents(mark.inner, mark.opening)})
    return found


def read(text: str) -> dict[str, str]:
    """Tag -> the one that it stands in; what is closed elsewhere is found out."""
    found: dict[str, str] = {}
    stack = [""]
    for tag in TAG.findall(text):
        if tag.startswith("</"):
            assert stack.pop() == tag.replace("/", "")
            continue
        assert tag not in found
        found[tag] = stack[-1]
        if f"</{tag[1:]}" in text:
            stack.append(tag)
    assert stack == [""]
    return found


words = st.lists(st.sampled_from(["a", "bc", "&", "def", ","]), min_size=1, max_size=8).map(" ".join)


@given(words, words, st.data())
def test_tags_are_all_there_nested_as_they_were_and_the_text_is_the_same(
    text: str, translation: str, data: st.DataObject
) -> None:
    marks = data.draw(trees(0, len(text)))
    named(marks)
    found = [
        From(one.start(), one.end(), data.draw(st.integers(0, len(text) - 1)))
        for one in re.finditer(r"\w+|[^\w\s]", translation)
    ]
    written = marked(text, marks, translation, found, lambda part: html.escape(part, quote=False))
    assert html.unescape(TAG.sub("", written)) == translation
    assert read(written) == parents(marks)


@given(words, st.data())
def test_words_that_stay_where_they_are_keep_their_tags_in_place(text: str, data: st.DataObject) -> None:
    """Where every word comes from itself, and tags stand tight around words, the output is the text with its tags."""
    spans = [one.span() for one in re.finditer(r"\w+|[^\w\s]", text)]
    edges = sorted(data.draw(st.lists(st.integers(0, len(spans) - 1), max_size=4, unique=True)))
    marks = [
        Mark(spans[first][0], spans[last][1], f"<t{first}>", f"</t{first}>")
        for first, last in zip(edges[::2], edges[1::2], strict=False)
    ]
    expected = text
    for mark in marks[::-1]:
        inside = f"{mark.opening}{text[mark.start : mark.end]}{mark.closing}"
        expected = expected[: mark.start] + inside + expected[mark.end :]
    assert marked(text, marks, text, [From(*span, span[0]) for span in spans], str) == expected


def test_a_tag_goes_with_its_words() -> None:
    text, translation = "a big old house", "Haus gross alt ein"
    order = [text.index(word) for word in ("house", "big", "old", "a")]
    found = [From(*one.span(), place) for one, place in zip(WORD.finditer(translation), order, strict=True)]
    marks = [Mark(2, 9, "<b>", "</b>"), Mark(10, 15, "<i>", "</i>"), Mark(15, 15, "<img>")]
    assert needs_words(text, marks)
    assert marked(text, marks, translation, found, str) == "<i>Haus</i> <b>gross alt</b> ein<img>"
    assert not needs_words(text, [Mark(0, 15, "<b>", "</b>", [Mark(15, 15, "<img>")]), Mark(15, 15, "<br>")])


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("one two <img>", "eins zwei <img>"),
        ("<img>one two<wbr>", "<img>eins zwei<wbr>"),
        ("<b>one two</b><!-- c -->", "<b>eins zwei</b><!-- c -->"),
        ("<b>one two<sup></sup></b> <img>", "<b>eins zwei <sup></sup></b><img>"),
    ],
)
def test_what_stands_at_the_ends_stays_there_though_nobody_looks_for_words(page: str, expected: str) -> None:
    [part] = segments(page)
    assert isinstance(part, Segment)
    assert not needs_words(part.text, part.marks)
    translation = part.text.replace("one two", "eins zwei")
    assert marked(part.text, part.marks, translation, [], str) == expected


def test_wrapped_lines_are_one_sentence() -> None:
    """With the tags where they were; white space around a text, and empty lines, stay."""
    parts = segments("<p>\n  one\r\n  <b>two \n\t three</b>\n<i>\nfour</i>.\n\nfive\n</p>")
    [part] = [part for part in parts if isinstance(part, Segment)]
    assert part.text == "\n  one two three\n\nfour.\n\nfive\n"
    assert [part.text[mark.start : mark.end] for mark in part.marks] == ["two three", "\nfour"]
    found = [part.text for part in segments("one\ntwo</b>\nthree") if isinstance(part, Segment)]
    assert found == ["one two", "\nthree"]


PARTS = [
    "<b>", "</b>", "<i>", "</i>", "<p>", "</p>", "<br>", "<img>", "<!-- c -->", "<code>", "</code>", "</span>", "</a>",
    "one", "two ", " ", "&amp;", ".", '<span translate="no">', "<a href='x'>",
]  # fmt: skip
document = st.lists(st.sampled_from(PARTS), max_size=20).map("".join)


def whole(part: Run | Segment) -> str:
    """As it was, with the marks where they were."""
    if isinstance(part, Run):
        return part.text
    spans = [one.span() for one in re.finditer(r"\w+|[^\w\s]", part.text)]
    return marked(part.text, part.marks, part.text, [From(*span, span[0]) for span in spans], html.escape)


@given(document)
def test_whatever_is_closed_elsewhere_nothing_of_a_document_is_lost(text: str) -> None:
    assert "".join(run.text for run in runs(text)) == text
    for moving in (True, False):
        again = "".join(map(whole, segments(text, moving)))
        assert Counter(TAG.findall(again)) == Counter(TAG.findall(text))
        assert html.unescape(TAG.sub("", again)) == html.unescape(TAG.sub("", text))
        fixed = re.compile(r"</?(?:p|br|code)>")
        assert fixed.findall(again) == fixed.findall(text)


@pytest.mark.parametrize(
    "parts",
    ["हिन्दी / में ।", "cafe\u0301 , noir", "กิ นข้ าว", "❤\ufe0f ok", "it ' s . 5", "שָׁלוֹם !"],
)
def test_no_tag_comes_between_a_letter_and_what_stands_on_it(parts: str) -> None:
    text = parts.replace(" ", "")
    assert [text[slice(*span)] for span in word_spans(text)] == parts.split()


def test_by_the_attention_of_a_model(served: Served, translator: Translator) -> None:
    text = 'The <b>European Commission</b> has adopted <a href="x">the report</a> on <i>climate change</i>.'
    plain = translator.translate(TAG.sub("", text))
    model, service = served.models.named(None), Service(served.models)
    long = f"<p>{text} It is <u>good <br/>news</u>.</p>"
    found, other = asyncio.run(translate_html(service, model, [text, long]))
    assert TAG.sub("", found.text) == plain
    assert Counter(TAG.findall(found.text)) == Counter(TAG.findall(text))
    assert "<b>Europäische Kommission</b>" in found.text
    assert re.search(r"<a href=\"x\">[^<]*Bericht</a>", found.text)
    assert re.search(r"<i>[^<]*Klimawandel</i>", found.text)
    assert re.fullmatch("<p>.*<u>.*<br/>.*</u>.*</p>", other.text)
    [wrapped] = asyncio.run(translate_html(service, model, [text.replace(" adopted", "\n  adopted")]))
    assert wrapped.text == found.text


@pytest.mark.parametrize(
    "text",
    [
        "<b><i>" * 3000 + "a" + "</b></i>" * 3000,
        "<b>a</b> " * 4000,
        "<b>" * 9000 + "a" + "</i>" * 9000,
        "<b>" * 5000 + "a" + "</b>" * 5000,
        "<b>" * 5000 + "a\n\nb" + "</b>" * 5000,
    ],
)
def test_many_tags_take_no_time(text: str) -> None:
    assert "".join(map(whole, segments(text))) == text


def test_looking_for_words_takes_turns_and_ends_with_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other requests are decoded in between; the work ends when the client leaves."""
    turns: list[int] = []

    class Turns:
        def __enter__(self) -> None:
            turns.append(0)

        def __exit__(self, *exception: object) -> None:
            pass

    class Looking:
        def align(self, lines: Sequence[Line]) -> list[AlignedWords]:
            turns[-1] += len(lines)
            return [AlignedWords([(0, 1)], np.array([[0, 1]]), np.ones((1, 1))) for _ in lines]

    monkeypatch.setattr(documents.Aligner, "of", lambda translator: Looking())
    model: Any = SimpleNamespace(translator=None, turns=Turns())
    piece = TranslatedPiece(Piece("", "a b", ""), [1], [1], "a b")
    done = [(Segment("a b", [Mark(0, 1, "<b>", "</b>")]), [piece])] * (2 * ROWS + 3)
    given_up = threading.Event()
    assert documents._written(model, done, str, given_up) == ["<b>a</b> b"] * len(done)
    assert turns == [ROWS, ROWS, 3]
    given_up.set()
    with pytest.raises(CancelledError):
        documents._written(model, done, str, given_up)
    assert turns == [ROWS, ROWS, 3]
