"""The simplest scores, and scores by source length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import InputError, OptionError
from longstride.tasks.score import ExactMatch, length_bins, repetition_rate, score_by_length, word_repetition


def test_the_share_of_outputs_that_are_their_reference() -> None:
    score = ExactMatch().score(["a b", "a  b", " c ", "", "D"], ["a b", "a b", "c", "", "d"])
    assert (score.name, score.value, score.signature) == ("exact match", 60.0, "exact-match|lines|percent")


def test_any_of_several_references_will_do() -> None:
    assert ExactMatch().score(["b", "c"], ["a\nb", "a\nb"]).value == 50.0


def test_nothing_has_no_score() -> None:
    with pytest.raises(InputError, match="at least one sentence"):
        ExactMatch().score([], [])


def test_definition() -> None:
    assert repetition_rate([["a", "a", "a", "b"]]) == 50.0
    assert repetition_rate([[5, 6, 5, 6]]) == 0.0
    assert repetition_rate([[5], [5]]) == 0.0, "repeats do not cross sentences"
    assert repetition_rate([]) == repetition_rate([[]]) == 0.0


def test_words_are_told_by_white_space_and_carry_a_signature() -> None:
    score = word_repetition(["the the  cat sat", ""])
    assert (score.value, score.signature) == (25.0, "repetition|immediate|words|percent")


@given(st.lists(st.lists(st.integers(5, 8), max_size=12), max_size=6))
def test_equals_counting_one_by_one(sentences: list[list[int]]) -> None:
    repeats = tokens = 0
    for sentence in sentences:
        for place, token in enumerate(sentence):
            tokens += 1
            repeats += place > 0 and sentence[place - 1] == token
    assert repetition_rate(sentences) == (100.0 * repeats / tokens if tokens else 0.0)


def test_by_hand() -> None:
    assert length_bins([5, 1, 3, 3, 9, 2, 3], 3) == [[1, 5, 2], [3, 6], [0, 4]]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.data())
def test_every_sentence_has_one_bin_of_its_length(lengths: list[int], data: st.DataObject) -> None:
    bins = data.draw(st.integers(1, len(lengths)))
    found = length_bins(lengths, bins)
    places = [place for part in found for place in part]
    assert sorted(places) == list(range(len(lengths)))
    assert [lengths[place] for place in places] == sorted(lengths)
    assert max(map(len, found)) - min(map(len, found)) <= 1


@pytest.mark.parametrize("bins", [0, 3])
def test_more_bins_than_sentences_are_refused(bins: int) -> None:
    with pytest.raises(OptionError, match=f"1 to 2 of them, one per sentence, found {bins}"):
        length_bins([1, 2], bins)


def test_every_bin_is_scored_alone() -> None:
    heard: list[list[int]] = []

    def metrics_of(places: list[int]) -> tuple[ExactMatch]:
        heard.append(places)
        return (ExactMatch(),)

    long, short = score_by_length([7, 2, 4, 1], 2, list("abcd"), list("axcd"), metrics_of)[::-1]  # type: ignore[arg-type]
    assert heard == [[3, 1], [2, 0]]
    assert (short.shortest, short.longest, short.sentences, short.scores[0].value) == (1, 2, 2, 50.0)
    assert (long.shortest, long.longest, long.sentences, long.scores[0].value) == (4, 7, 2, 100.0)
