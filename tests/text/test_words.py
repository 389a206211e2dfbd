"""Word vocabularies for text that is already split."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import EOS, MASK, RESERVED, UNK, ModelFolderError, OptionError
from longstride.text.tokenizer import WordsTokenizer, build_words, load_tokenizer

VOCABULARY = [*RESERVED, "das", "Haus@@", "boot", "a@@", "fährt", "no\u00a0break"]


def test_known_words_come_back_and_unknown_ones_are_unk() -> None:
    words = WordsTokenizer(VOCABULARY, join="none")
    assert words.encode("das  boot\tfährt heute") == [5, 7, 9, UNK]
    assert words.decode([5, 7, 9]) == "das boot fährt"
    assert words.decode([2, 5, UNK, EOS, 0]) == "das <unk>"
    assert words.pieces([5, EOS]) == ["das", "</s>"]
    assert words.encode("no\u00a0break") == [10]


def test_continuations_are_joined_when_so_asked() -> None:
    ids = [5, 6, 7, 9]
    assert WordsTokenizer(VOCABULARY).decode(ids) == "das Hausboot fährt"
    assert WordsTokenizer(VOCABULARY, join="none").decode(ids) == "das Haus@@ boot fährt"
    assert WordsTokenizer(VOCABULARY).decode([5, 6]) == "das Haus"


@given(line=st.lists(st.sampled_from([*VOCABULARY[5:], *RESERVED, "new"])).map(" ".join))
def test_text_never_names_a_reserved_word(line: str) -> None:
    words = WordsTokenizer(VOCABULARY, join="none")
    ids = words.encode(line)
    assert all(id == UNK or id > MASK for id in ids)
    expected = " ".join("<unk>" if word in RESERVED or word == "new" else word for word in line.split(" "))
    assert words.decode(ids) == expected


@given(
    lines=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5),
    join=st.sampled_from(["@@", "none"]),
)
def test_a_built_vocabulary_is_the_same_after_loading(tmp_path_factory: pytest.TempPathFactory, lines, join) -> None:
    path = tmp_path_factory.mktemp("words") / "words.txt"
    built = build_words(lines, path, join=join)
    loaded = load_tokenizer(path)
    assert (loaded.kind, loaded.size, loaded.sha256) == ("words", built.size, built.sha256)
    assert loaded.encode_many(lines) == built.encode_many(lines)
    assert loaded.decode_many(loaded.encode_many(lines)) == built.decode_many(built.encode_many(lines))


def test_a_carriage_return_within_a_line_is_between_words(tmp_path: Path) -> None:
    words = build_words(["a b\rc\r"], tmp_path / "w")
    assert words.pieces(range(5, words.size)) == ["a", "b", "c"]
    assert words.decode(words.encode("a\rb")) == words.as_decoded("a\rb") == "a b"


def test_the_most_frequent_words_are_kept(tmp_path: Path) -> None:
    lines = ["b a c", "b a", "b <s>"]
    assert build_words(lines, tmp_path / "w").pieces(range(5, 8)) == ["b", "a", "c"]
    assert build_words(lines, tmp_path / "w", size=7).size == 7
    with pytest.raises(OptionError, match="size expects more than"):
        build_words(lines, tmp_path / "w", size=5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<pad>\n<unk>\n", "line 1: expected"),
        ("longstride-words 2 join=@@\n", "line 1: expected"),
        ("longstride-words 1 join=@@\n<pad>\n<s>\n", "first five symbols"),
        ("longstride-words 1 join=@@\n" + "\n".join(RESERVED) + "\na\nb\na\n", "word 6: expected every word once"),
        ("longstride-words 1 join=@@\n" + "\n".join(RESERVED) + "\na\n<s>\n", "word 7: expected every word once"),
        ("longstride-words 1 join=@@\n" + "\n".join(RESERVED) + "\na b\n", "without spaces"),
        ("longstride-words 1 join=@@\n" + "\n".join(RESERVED) + "\nab", "cut"),
    ],
)
def test_a_bad_vocabulary_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "words.txt").write_text(content)
    with pytest.raises(ModelFolderError, match=message):
        load_tokenizer(tmp_path / "words.txt")


def test_a_vocabulary_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_bytes(b"longstride-words 1 join=@@\n\xff\n")
    with pytest.raises(ModelFolderError, match="UTF-8"):
        load_tokenizer(tmp_path / "words.txt")


@pytest.mark.parametrize(("join", "expected"), [("@@", "lower case x"), ("none", "low@@ er case x")])
def test_references_are_spelt_as_outputs_are(tmp_path, join, expected):
    tokenizer = build_words(["low@@ er case x"], tmp_path / "words", join=join)
    assert tokenizer.as_decoded("low@@ er  case x") == expected
    assert tokenizer.decode(tokenizer.encode("low@@ er  case x")) == expected
