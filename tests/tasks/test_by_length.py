"""Bins of equally many sentences, from short to long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import OptionError
from longstride.tasks.score import ExactMatch, length_bins, score_by_length


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
