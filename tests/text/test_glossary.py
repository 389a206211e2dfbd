"""Glossaries: which terms a line has, what their outputs must hold, and files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import InputError, OptionError
from longstride.text.glossary import Glossary, occurrences

WORDS = st.sampled_from(["cat", "Cat", "dog", "hot", "hot-dog", "cats", "NASA"])


def targets(entries: dict[str, str | None], line: str) -> tuple[str, ...]:
    found = Glossary.of(entries).terms(line)
    return () if found is None else found.targets


def test_terms_are_whole_words_the_longest_first() -> None:
    entries = {"cat": "Katze", "hot dog": "Hotdog", "dog": "Hund", "NASA": None}
    assert targets(entries, "A Cat, two cats; a hot dog and (dog)!") == ("Katze", "Hotdog", "Hund")
    assert targets(entries, "NASA is not nasa") == ("NASA",)
    assert targets(entries, "concatenate catalog") == ()
    found = Glossary.of(entries).terms("The cat saw a hot dog.")
    assert found is not None
    assert found.switched == "The Katze saw a Hotdog."


def test_terms_of_scripts_without_spaces() -> None:
    assert targets({"長城": "Große Mauer"}, "我喜歡長城。") == ("Große Mauer",)
    assert occurrences("長城", "我喜歡長城。") == 1


def test_vowels_and_accents_that_stand_on_letters_belong_to_words() -> None:
    assert targets({"हिन": "X", "cafe": "Kaffee"}, "हिन्दी cafe\u0301") == ()
    assert targets({"हिन्दी": "Hindi"}, "हिन्दी।") == ("Hindi",)
    assert occurrences("हिन", "हिन्दी") == 0
    assert targets({"cat": "Katze"}, "\u2764\ufe0fcat\u2764\ufe0f") == ("Katze",)


def test_addresses_are_kept() -> None:
    line = "See https://example.com/a?b=1, www.example.org. Or write (jane.doe@example.co.uk)!"
    found = Glossary((name, None) for name in ("{url}", "{email}")).terms(line)
    assert found is not None
    assert found.targets == ("https://example.com/a?b=1", "www.example.org", "jane.doe@example.co.uk")
    assert found.switched == line


def test_a_long_word_is_looked_through_once() -> None:
    """In time that goes up with the square of its length, this would take an hour."""
    addresses = Glossary((name, None) for name in ("{url}", "{email}"))
    assert addresses.terms("a" * 500_000) is None
    found = addresses.terms("a" * 500_000 + " jane+1@example.org")
    assert found is not None
    assert found.targets == ("jane+1@example.org",)


def test_a_line_of_many_terms_is_looked_through_once() -> None:
    """In time that goes up with the square of its length, this would take a minute."""
    found = Glossary.of({"cat": "Katze"}).terms("cat " * 3 * 10**5)
    assert found is not None
    assert found.missing("Katze " * 3 * 10**5) == []


def test_missing_is_counted_and_capitals_may_begin() -> None:
    found = Glossary.of({"cat": "gato"}).terms("The cat saw a cat.")
    assert found is not None
    assert found.missing("El gato vio un gato.") == []
    assert found.missing("Gato y gatos.") == ["gato"]
    assert found.at_first("gato") == "Gato"
    assert Glossary.of({"cat": "Gato"}).terms("a cat").missing("un gato") == ["Gato"]  # type: ignore[union-attr]


@given(words=st.lists(WORDS, max_size=6), terms=st.lists(WORDS, max_size=3, unique=True))
def test_a_line_with_the_terms_switched_lacks_none(words: list[str], terms: list[str]) -> None:
    line = " ".join(words)
    found = Glossary((term, f"T{number}x") for number, term in enumerate(terms)).terms(line)
    if found is None:
        assert not any(term in words for term in terms)
    else:
        assert found.missing(found.switched) == []
        assert found.missing("") == list(dict.fromkeys(found.targets))


def test_a_file_is_read_and_the_latter_glossary_counts(tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text("# ours\ncat\tKatze\n\nNASA\n{url}\n", encoding="utf-8")
    found = Glossary.read(file)
    assert found.entries == {"cat": "Katze", "NASA": "NASA"}
    assert len(found) == 3
    assert found.sha256 == Glossary.of({"cat": "Katze", "NASA": None, "{url}": None}).sha256 != Glossary([]).sha256
    both = found.joined(Glossary.of([("cat", "Kater")]))
    assert both.entries == {"cat": "Kater", "NASA": "NASA"}
    assert both.terms("www.example.com") is not None


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("dog\tHund\tRüde", "expected a term, a tab and its translation, or a term alone, found 'dog.tHund.tRüde'."),
        ("\tHund", "expected a term, a tab and its translation"),
        ("dog\t", "expected a term, a tab and its translation"),
        ("cat\tKater", "A glossary expects one translation of 'cat', found 'Katze' and 'Kater'."),
        ("{url}\tx", "A glossary expects no translation of {url}, found 'x'."),
        ("x" * 1001, "A glossary expects terms of 1 to 1000 characters"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: str, told: str) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text(f"cat\tKatze\n\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError) as error:
        Glossary.read(file)
    assert str(error.value).startswith(f"{file}, line 3: {told.split('found', maxsplit=1)[0]}")


def test_what_is_no_glossary_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.tsv").write_text("# nothing\n")
    with pytest.raises(InputError, match=r"empty.tsv: expected a glossary, found no term in it.$"):
        Glossary.read(tmp_path / "empty.tsv")
    for wrong in ([("a", "b", "c")], {"a": 3}, [""], 5, b"a", [5]):
        with pytest.raises(OptionError, match=r"^A glossary expects"):
            Glossary.of(wrong)  # type: ignore[arg-type]
