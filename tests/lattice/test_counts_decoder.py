"""The counts alone as a decoder: the first candidate of every place, for as many places as the regression says."""

from __future__ import annotations

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, UNK, Limits, Source
from longstride.runtime.eager import EagerRunner
from longstride.systems.lattice.counts import tables_of
from longstride.systems.lattice.counts_decoder import CountsDecoder
from longstride.systems.lattice.tables import CountOptions, Tables
from tests.lattice.test_counts import EXAMPLE, VOCABULARY, Triple, counted, triples

OPTIONS = CountOptions(reach=2)


def decoder(corpus: list[Triple]) -> tuple[Tables, CountsDecoder]:
    tables = tables_of(counted(corpus, OPTIONS), OPTIONS, "hash")
    return tables, CountsDecoder(tables, EagerRunner("cpu", "fp16"))


def first_words(tables: Tables, sentence: list[int]) -> list[int]:
    source = Source.of([[*sentence, EOS]])
    columns = int(tables.options.length.predict(source.lengths)) - 1
    ids = tables.candidates(source.ids, source.lengths, columns, 1).ids[0, :, 0].tolist()
    return [word or UNK for word in ids]


@settings(max_examples=40)
@example([([5], [5] * 6, [0] * 6)], [[5] * 6], 1)
@given(
    st.lists(triples(), min_size=1, max_size=6),
    st.lists(st.lists(st.integers(5, VOCABULARY - 1), max_size=6), min_size=1, max_size=5),
    st.integers(1, 5),
)
def test_the_first_candidates_whatever_stands_beside(
    corpus: list[Triple], sentences: list[list[int]], capacity: int
) -> None:
    tables, decode = decoder(corpus)
    decoded = decode.decode(Source.of([[*sentence, EOS] for sentence in sentences]), capacity=capacity, trace=True)
    # Where a corpus has many target words to a source word, the usual limit on outputs is shorter than the regression.
    longest = [int(Limits().longest_outputs(torch.tensor(len(sentence) + 1))) for sentence in sentences]
    expected = [first_words(tables, one)[:most] for one, most in zip(sentences, longest, strict=True)]
    assert decoded.tokens == expected
    assert decoded.traces is not None
    assert [trace.replay() for trace in decoded.traces] == decoded.tokens
    assert all(trace.iterations == 1 for trace in decoded.traces)


def test_limits_hold() -> None:
    _, decode = decoder(EXAMPLE)
    source = Source.of([[5, 6, EOS]])
    free = decode.decode(source).tokens[0]
    assert decode.decode(source, Limits(max_length=1)).tokens == [free[:1]]
    longer = decode.decode(source, Limits(min_length=6)).tokens[0]
    assert len(longer) == 6
    assert longer[: len(free)] == free


def test_banned_words_give_way_to_the_next() -> None:
    _, decode = decoder(EXAMPLE)
    source = Source.of([[5, 6, EOS]])
    assert decode.decode(source).tokens[0][0] == 7
    assert decode.decode(source, Limits(banned=(7,))).tokens[0][0] == 9
    nothing_left = decode.decode(source, Limits(banned=(7, 9))).hypotheses[0][0]
    assert nothing_left.tokens[0] == UNK
    assert torch.isfinite(torch.tensor(nothing_left.score))
    without_unk = decode.decode(source, Limits(banned=(UNK, 7, 9))).tokens[0]
    assert not {UNK, 7, 9} & {*without_unk}
    assert decode.signature.startswith("counts|eager|fp16|")
