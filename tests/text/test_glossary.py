"""Glossaries: which terms a line has, what their outputs must hold, and files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import InputError, OptionError
from longstride.text.glossary import _FIRST, KINDS, Glossary, joins, occurrences

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


def naive(entries: dict[str, str], kinds: list[str], line: str) -> list[tuple[int, int, str]]:
    """Try every term at every word, and keep the first match, the longest of several."""
    every = [(match.start(), match.end(), match[0]) for kind in kinds for match in KINDS[kind].finditer(line)]
    for word in _FIRST.finditer(line):
        for term, target in sorted(entries.items(), key=lambda entry: -len(entry[0])):
            end = word.start() + len(term)
            here, first = line[word.start() : end], _FIRST.match(term)
            if first is None or first[0].lower() != word[0].lower():
                continue
            same = here == term or (term == term.lower() and here.lower() == term)
            around = line[max(word.start() - 1, 0) : word.start()], line[end : end + 1]
            if same and not joins(around[0], here) and not joins(here, around[1]):
                every.append((word.start(), end, here if target == term else target))
                break
    chosen: list[tuple[int, int, str]] = []
    for one in sorted(every, key=lambda found: (found[0], -found[1])):
        if not chosen or one[0] >= chosen[-1][1]:
            chosen.append(one)
    return chosen


PARTS = st.sampled_from(
    ["cat", "Cat", "CAT", "dog", "a", "A", " ", " ", "-", ".", "城", "長", "İ", "ß", "i\u0307", "@b.c", "1"]
)
TEXTS = st.lists(PARTS, min_size=1, max_size=8).map("".join)
ENTRIES = st.dictionaries(
    TEXTS.map(lambda text: " ".join(text.split())).filter(bool), st.sampled_from(["x", "y", None])
)


@given(line=TEXTS, model=ENTRIES, request=ENTRIES, kinds=st.sampled_from([[], ["{email}"], ["{url}", "{email}"]]))
def test_terms_are_found_as_by_trying_each(
    line: str, model: dict[str, str | None], request: dict[str, str | None], kinds: list[str]
) -> None:
    both = Glossary.of({**model, **dict.fromkeys(kinds)}).joined(Glossary.of(request))
    wanted = naive({term: target or term for term, target in {**model, **request}.items()}, kinds, line)
    found = both.terms(line)
    assert (found.targets if found else ()) == tuple(target for _, _, target in wanted)
    single = Glossary.of({**model, **request, **dict.fromkeys(kinds)})
    assert single.terms(line) == found


def test_the_number_of_terms_costs_a_line_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of look-ups depends on the lengths of terms that begin with a word, and not on their number."""
    tried = list[str]()
    same = Glossary._same
    monkeypatch.setattr(Glossary, "_same", lambda self, here: tried.append(here) or same(self, here))
    for number in (10, 10_000):
        glossary = Glossary((f"the cat {place:05}", "x") for place in range(number))
        assert glossary.terms("the cat 00007 and the dog, the end") is not None
    assert len(tried) == 2 * 3


def test_a_requests_glossary_does_not_copy_the_models() -> None:
    model, request = Glossary.of({"cat": "Katze", "dog": "Hund"}), Glossary.of({"cat": "Kater"})
    both = model.joined(request)
    assert both.terms("cat dog") is not None
    assert "lengths" in vars(model)
    assert "lengths" not in vars(both)


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


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'<?xml version="1.0"?>\n<tmx version="1.4">\n', r"translation, found XML; translate --drafts reads"),
        (b'{"cat": "Katze"}\n', "translation, found JSON"),
        (b'{\n  "cat": "Katze"\n}\n', "translation, found JSON"),
        (b"cat,Katze\ndog,Hund\n", "found commas or semicolons in the place of tabs"),
        (b"The cat sat on the mat and then it went away to see the dog.\n", "found no tab and a line of 15 words"),
        (b"PK\x03\x04\xff\xfe", "expected UTF-8, found a zip archive"),
        (b"%PDF-1.4\n\xff", "found a document|expected UTF-8"),
        (b"cat\tKat\0ze\n", "line 1: expected a term, a tab and its translation"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    file = tmp_path / "terms.tmx"
    file.write_bytes(content)
    with pytest.raises(InputError, match=told) as error:
        Glossary.read(file)
    assert str(error.value).startswith(str(file))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ["[sic]\t[sic]\n", "<b>\tb\n", "{name}\t{name}\n", "{url}\n", "cat, dog\n"])
def test_terms_may_begin_with_signs(tmp_path: Path, content: str) -> None:
    (tmp_path / "terms.tsv").write_text(content)
    assert len(Glossary.read(tmp_path / "terms.tsv")) == 1


def test_what_is_no_glossary_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.tsv").write_text("# nothing\n")
    with pytest.raises(InputError, match=r"empty.tsv: expected a glossary, found no term in it.$"):
        Glossary.read(tmp_path / "empty.tsv")
    for wrong in ([("a", "b", "c")], {"a": 3}, [""], 5, b"a", [5]):
        with pytest.raises(OptionError, match=r"^A glossary expects"):
            Glossary.of(wrong)  # type: ignore[arg-type]
