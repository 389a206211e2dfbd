from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longstride.contract import EOS, PAD, Limits, OptionError, Source
from tests.fakes import CopyDecoder

sentences = st.lists(st.lists(st.integers(5, 99), max_size=12), max_size=15)


@given(sentences, st.none() | st.integers(1, 20), st.booleans())
def test_outputs_come_in_the_order_of_the_rows(rows: list[list[int]], capacity: int | None, trace: bool) -> None:
    source = Source.of([[*row, EOS] for row in rows])
    found = CopyDecoder().decode(source, capacity=capacity, trace=trace)
    assert (found.tokens if rows else found.hypotheses) == rows
    if trace:
        assert found.traces is not None
        assert [one.replay() for one in found.traces] == rows
        assert [one.committed for one in found.traces] == [len(row) + 1 for row in rows]
    else:
        assert found.traces is None
    assert found.calls >= found.iterations >= max((len(row) + 1 for row in rows), default=0)


def test_a_small_table_takes_sentences_in_as_slots_fall_free() -> None:
    source = Source.of([[5, EOS], [5] * 9 + [EOS], [6, EOS], [7, EOS], [8, EOS]])
    found = CopyDecoder().decode(source, capacity=2)
    assert found.tokens == [[5], [5] * 9, [6], [7], [8]]
    # The short ones pass through the other slot while the long one is at work.
    assert found.iterations == 10


@given(sentences.filter(len), st.integers(0, 20))
def test_sources_are_padded_on_the_right(rows: list[list[int]], longest: int) -> None:
    ended = [[*row, EOS] for row in rows]
    source = Source.of(ended, longest)
    assert (source.rows, source.longest) == (len(rows), max(longest, *map(len, ended), 0))
    for row, sentence in enumerate(ended):
        assert source.ids[row].tolist() == sentence + [PAD] * (source.longest - len(sentence))
    assert source.lengths.tolist() == [len(sentence) for sentence in ended]
    assert source.slice(1, 3).lengths.tolist() == [len(sentence) for sentence in ended[1:3]]


@given(st.integers(1, 300), st.integers(1, 300), st.floats(0, 5), st.integers(0, 50), st.data())
def test_longest_outputs_obey_every_limit(
    length: int, most: int, ratio: float, extra: int, data: st.DataObject
) -> None:
    least = data.draw(st.integers(0, most))
    limits = Limits(max_length=most, max_ratio=ratio, max_extra=extra, min_length=least)
    found = int(limits.longest_outputs(torch.tensor([length]))[0])
    assert max(1, least) <= found <= most
    assert found == min(most, max(1, least, int((length - 1) * ratio) + extra))


@given(st.integers(0, 400), st.integers(0, 50))
def test_rows_and_their_tables_are_told_the_same(hundredths: int, extra: int) -> None:
    limits, lengths = Limits(max_length=10**6, max_ratio=hundredths / 100, max_extra=extra), torch.arange(1, 1025)
    assert limits.longest_outputs(lengths).tolist() == [limits.longest_output(length) for length in lengths.tolist()]


def test_outputs_stop_at_the_limit() -> None:
    found = CopyDecoder().decode(Source.of([[5, 6, 7, EOS]]), Limits(max_length=2))
    assert found.tokens == [[5, 6]]
    assert found.scores == [0.0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_length": 0}, "max_length expects a whole number from 1 to 1000000, found 0"),
        ({"max_ratio": -1.0}, "max_ratio"),
        ({"max_extra": -1}, "max_extra"),
        ({"min_length": -1}, "min_length"),
        ({"max_length": 3, "min_length": 4}, r"min_length expects 0 to max_length \(3\), found 4"),
    ],
)
def test_senseless_limits_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Limits(**wrong)  # type: ignore[arg-type]
