"""Texts in pieces: joined again they are the text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.text.sentences import LONGEST_WORD, alternating, cut, has_words, pieces, split

GAPS = st.sampled_from([" ", "  ", "\n", " \t"])
TEXTS = st.text(st.sampled_from("ab. A!?\n\r\t \u2028。…\"'(3é") | st.characters(codec="utf-8"), max_size=60)


@given(TEXTS, st.integers(0, 20))
def test_pieces_joined_are_the_text(text: str, most: int) -> None:
    pieces = split(text, lambda line: len(line) <= most)
    assert "".join(map(str, pieces)) == text
    assert all(piece.text == piece.text.strip() for piece in pieces)
    assert all("\n" not in piece.text for piece in pieces)


@given(TEXTS, st.integers(1, 20))
def test_parts_of_a_sentence_fit(text: str, most: int) -> None:
    parts = cut(text, lambda part: len(part) <= most)
    assert "".join(parts) == text
    assert all(len(part.strip()) <= most for part in parts)


@given(TEXTS, st.integers(1, 20))
def test_sentences_and_what_is_between_them_take_turns(text: str, most: int) -> None:
    """No letter or digit is between them, whatever the text, and in each of them is one; all of them fit."""
    found = alternating(text, lambda part: len(part) <= most)
    assert "".join(found) == text
    assert len(found) % 2 == 1
    assert not has_words("".join(found[1::2]))
    assert all(part == part.strip() and len(part) <= most and has_words(part) == bool(part) for part in found[::2])
    assert [part for part in found[::2] if part] == [
        piece.text for piece in pieces(text, lambda line: False, lambda part: len(part) <= most) if piece.text
    ]


def test_the_number_of_a_point_begins_its_sentence() -> None:
    found = [piece.text for piece in split(" 5. A new one came. He was 5. She was 6.")]
    assert found == ["5. A new one came.", "He was 5.", "She was 6."]


def test_sentences_are_told_apart_from_abbreviations() -> None:
    text = "Mr. Smith came. He left at 3.15 p.m. with J. Doe!  “Why?” Nobody knows (yet.) End"
    found = [piece.text for piece in split(text)]
    assert found == [
        "Mr. Smith came.", "He left at 3.15 p.m. with J. Doe!", "“Why?”", "Nobody knows (yet.)", "End",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Das sind usw. über 3 Mio. österreichische Kronen. Über alles.", 1),
        ("На ул. (ленина) был дом. Да.", 1),
        ("本当？！はい。", 1),
        ("すごい！！！", 0),
        ("「こんにちは。」と言った。次です。", 1),
        ("（そう。） はい。iPhoneは。", 1),
    ],
)
def test_what_goes_on_is_no_new_sentence(text: str, expected: int) -> None:
    """A small letter of any script, a further sign of the same end, or what closes quotes and brackets."""
    assert len(split(text)) == expected + 1


def test_a_line_that_fits_stays_whole() -> None:
    pieces = split("One. Two.\n\n  Three. Four.  ", lambda line: True)
    assert [piece.text for piece in pieces] == ["One. Two.", "Three. Four."]


@pytest.mark.parametrize(
    "text",
    [" " * 10**6 + "a", "A. " * 10**5, "\n " * 10**5 + "x", " \t" * 10**5 + "\n"],
    ids=["spaces", "letters", "lines", "tabs"],
)
def test_no_text_takes_long_to_be_split(text: str) -> None:
    """Once a quadratic one took minutes: a million spaces would not be done today."""
    assert "".join(map(str, split(text))) == text


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.sampled_from(["a b", "A.", "x" * LONGEST_WORD, "x" * (LONGEST_WORD + 1)]), GAPS), max_size=6)
)
def test_what_is_no_word_is_kept_between_sentences(pairs: list[tuple[str, str]]) -> None:
    """And all else is in parts that fit: writing without spaces too."""
    found = alternating("".join(word + gap for word, gap in pairs), lambda part: len(part) <= 200)
    assert "".join(found) == "".join(word + gap for word, gap in pairs)
    assert all(len(part) <= 200 for part in found[::2])
    kept = [word for gap in found[1::2] for word in gap.split()]
    assert kept == [word for word, _ in pairs if len(word) > LONGEST_WORD]
    assert alternating("x" * 10**5, lambda part: True) == ["x" * 10**5], "a word that a model can read"
