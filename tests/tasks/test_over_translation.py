"""Over-translation against values computed by hand."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import InputError, OptionError
from longstride.tasks.ngrams import OverTranslation


def test_by_hand() -> None:
    # Unigrams: "the" 3 against 1 is 2 too many, "cat" 2 against 1 is 1, "sat" 1 against 1 none, "so" twice and never
    # wanted is 1: 4 of 8. Bigrams: "the cat" 2 against 1 is 1, "cat the" twice and never wanted is 1: 2 of 7.
    output, reference = "the cat the cat the sat so so", "the cat sat here"
    longer = math.exp(1 - 4 / 8)
    score = OverTranslation(2).score([output], [reference])
    assert score.name == "OTEM-2"
    assert score.value == pytest.approx(100 * longer * math.sqrt(4 / 8 * 2 / 7))
    assert score.signature.startswith("otem|n:2|tok:13a|case:mixed|percent|v")
    assert OverTranslation(1).score([output], [reference]).value == pytest.approx(100 * longer * 4 / 8)


def test_up_to_four_words() -> None:
    # "a" nine times against twice; of every order all n-grams are one, which the reference has 2, 1, 0 and 0 times.
    output, reference = "a a a a a a a a a", "a a b c d e f g h"
    p = (7 / 9) * (7 / 8) * (6 / 7) * (5 / 6)
    assert OverTranslation(4).score([output], [reference]).value == pytest.approx(100 * p ** (1 / 4))


def test_sums_over_the_corpus_come_before_the_ratio() -> None:
    outputs, references = ["a a", "b c d"], ["a b", "b c d e f"]
    # Too many: 1 of 5 unigrams, 0 of 3 bigrams; 5 tokens where 7 are wanted.
    assert OverTranslation(1).score(outputs, references).value == pytest.approx(100 * 1 / 5)
    assert OverTranslation(2).score(outputs, references).value == 0.0


def test_shorter_output_is_not_punished_and_longer_is() -> None:
    assert OverTranslation(1).score(["a a"], ["a b c d"]).value == pytest.approx(100 * 1 / 2)
    assert OverTranslation(1).score(["a a"], ["a b"]).value == pytest.approx(100 * 1 / 2)
    assert OverTranslation(1).score(["a a b c"], ["a b"]).value == pytest.approx(100 * math.exp(0.5) / 4)


def test_punctuation_is_a_word_of_its_own() -> None:
    assert OverTranslation(1).score(["Ja, ja, nein."], ["Ja, nein, nein."]).value == 0.0
    assert OverTranslation(1).score(["Ja,,"], ["Ja, nein"]).value == pytest.approx(100 * 1 / 3)


@pytest.mark.parametrize(("outputs", "references"), [(["a b"], ["a b"]), ([""], ["a"]), ([""], [""]), (["a"], [""])])
def test_nothing_too_often_is_nothing(outputs: list[str], references: list[str]) -> None:
    assert OverTranslation(2).score(outputs, references).value == 0.0


@given(st.lists(st.sampled_from("abc"), max_size=8), st.lists(st.sampled_from("abc"), max_size=8))
def test_it_is_the_definition_word_by_word(output: list[str], reference: list[str]) -> None:
    said, wanted = Counter(output), Counter(reference)
    too_many = 0
    for word in said:
        if word in wanted:
            too_many += said[word] - wanted[word] if said[word] > wanted[word] else 0
        elif said[word] > 1:
            too_many += said[word] - 1
    longer = math.exp(1 - len(reference) / len(output)) if output and len(output) >= len(reference) else 1.0
    expected = 100 * longer * too_many / len(output) if output else 0.0
    assert OverTranslation(1).score([" ".join(output)], [" ".join(reference)]).value == pytest.approx(expected)


def test_misuse() -> None:
    with pytest.raises(OptionError, match="order expects 1 or more, found 0"):
        OverTranslation(0)
    with pytest.raises(InputError, match="one reference per output"):
        OverTranslation().score(["a"], [])
