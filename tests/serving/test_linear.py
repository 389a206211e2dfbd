"""The work that documents take goes up with their length and no faster, whatever is in them."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.serving import html as pages
from longstride.serving.alignment import AlignedWords, word_spans
from longstride.serving.errors import BadRequestError
from longstride.serving.html import MOST_ELEMENTS, Segment, html_words, parsed, segments, unescape
from longstride.serving.markup import marked
from longstride.serving.subtitles import MOST_LINES, subtitles
from tests.serving.conftest import HANG

PARTS = [
    "<svg>", "</svg>", "<code>", "</code>", "<b>", "</b>", "<i>", "</i>", "<p>", "</p>", "<br>", "<wbr>", "<img a='b'>",
    "<a href=x>", "</a>", "<span class='notranslate'>", "</span>", "<p class=\"a ", "<!-- c -->", "<!--", "<![CDATA[",
    "<script>", "</script>", "<style>", "<", ">", "'", '"', "&amp;", "&#65;", "&#", "&", "a", "b ", " ", "\n", ".",
]  # fmt: skip


def lines_run(work: Callable[[], Any]) -> int:
    """Lines of Python that some work takes."""
    number = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal number
        number += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return number


def grows_no_faster_than_its_length(work: Callable[[int], Callable[[], Any]]) -> None:
    once, twice = lines_run(work(60)), lines_run(work(120))
    assert twice <= 2.2 * once + 100


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("".join), st.sampled_from(PARTS))
def test_a_page_twice_as_long_takes_twice_the_work(part: str, other: str) -> None:
    for moving in (True, False):
        grows_no_faster_than_its_length(lambda n, moving=moving: lambda: segments(part * n + other * n, moving))


@pytest.mark.parametrize(
    ("first", "last"), [("<svg>", "</b>"), ("<svg><math>", "</i></b>"), ("<b translate=no>", "<b>")]
)
def test_nested_tags_take_no_time(first: str, last: str) -> None:
    """Megabytes of them: in time that goes up with the square of their number, this would take many minutes."""
    begun = time.process_time()
    pages.runs(first * 150_000 + "a" + last * 150_000)
    assert time.process_time() - begun < HANG


def test_kept_elements_end_where_they_are_closed() -> None:
    """A plain search in the list of open elements gives the same result."""
    parts = ["<svg>", "</svg>", "<code>", "</code>", "</b>", "<b>", "a"]

    @given(st.lists(st.sampled_from(parts), max_size=20))
    def check(tags: list[str]) -> None:
        kept: list[str] = []
        expected = []
        for tag in tags:
            name = tag.strip("</>")
            if tag == "a":
                expected.append(not kept)
            elif tag.startswith("</") and name in kept:
                del kept[len(kept) - 1 - kept[::-1].index(name) :]
            elif not tag.startswith("</") and (kept or name != "b"):
                kept.append(name)
        document = "<p>".join(tags).replace("<p>a", "<p/>a")  # so that no two texts are one
        assert [run.translated for run in pages.runs(document) if run.text == "a"] == expected

    check()


def test_tags_in_a_sentence_take_no_time() -> None:
    """The shares of words are computed once for each tag, not for each tag and word."""

    class Counting(AlignedWords):
        def within(self, start: int, end: int) -> list[float]:
            nonlocal asked
            asked += 1
            return super().within(start, end)

    asked = 0
    [part] = [one for one in segments("<wbr>a " * 299) if isinstance(one, Segment)]
    spans = word_spans(part.text)
    words = Counting(spans, np.array(spans), np.eye(len(spans)))
    written = marked(part.text, part.marks, part.text, [words], html.escape)
    assert written.count("<wbr>") == 299
    assert asked <= len(part.marks)


@given(st.data())
def test_words_are_looked_at_together_as_one_by_one(data: st.DataObject) -> None:
    """To the last bit, so that ties stay ties."""
    generator = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    number, tokens, length = (data.draw(st.integers(1, most)) for most in (9, 300, 400))
    ends = np.sort(generator.integers(0, length, tokens + 1))
    shares = generator.dirichlet(np.full(tokens, 0.1), number)
    words = AlignedWords([(0, 1)] * number, np.stack([ends[:-1], ends[1:]], 1), shares)
    start, end = sorted(generator.integers(0, length, 2).tolist())
    first, last = words.sources[:, 0], words.sources[:, 1]
    common = np.minimum(last, end) - np.maximum(first, start)
    part = np.clip(common / np.maximum(1, last - first), 0, 1)
    assert words.within(start, end) == [float((row * part).sum()) for row in shares]


def test_references_to_numbers_without_an_end_are_read() -> None:
    """Python refuses to make a number of more than 4,300 digits."""
    assert unescape("a&#" + "9" * 10_000 + ";b") == "a\ufffdb"
    assert [run.text for run in pages.runs("<p>&#" + "1" * 5000) if run.translated] == []
    assert unescape("&#00065;&amp;&#x41;") == "A&A"


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (lambda: parsed(["<b>" * 60_000, "<b>" * 60_000], True, 10), f"more than {MOST_ELEMENTS} tags"),
        (lambda: html_words(["<" * (MOST_ELEMENTS + 1)]), f"more than {MOST_ELEMENTS} tags"),
        (lambda: subtitles("<b>" * (MOST_ELEMENTS + 1), True, 10), f"more than {MOST_ELEMENTS} tags"),
        (lambda: subtitles("-.\n" * (MOST_LINES + 1), True, 10), f"more than {MOST_LINES} lines"),
        (lambda: parsed(["<p>a" * 6, "<p>a" * 5], True, 10), "11 sentences, and at most 10 may wait"),
        (lambda: subtitles("- a\n" * 100_000, True, 10), "11 sentences, and at most 10 may wait"),
    ],
)
def test_documents_beyond_the_limits_are_refused(work: Callable[[], Any], told: str) -> None:
    with pytest.raises(BadRequestError, match=told) as raised:
        work()
    assert raised.value.status == 413
