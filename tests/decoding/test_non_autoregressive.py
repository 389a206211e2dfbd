"""One-pass decoding from ids to ids: against a loop over lengths and slots, in batches, within limits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, MASK, PAD, START, Limits, OptionError, Source
from longstride.runtime.eager import EagerRunner
from longstride.search.lengths import LengthRegression
from longstride.systems.non_autoregressive import decoder as decoding
from longstride.systems.non_autoregressive import filling
from longstride.systems.non_autoregressive.decoder import NonAutoregressive
from longstride.systems.non_autoregressive.model import OnePass, places_in_source
from tests.decoding.one_pass import decoder, slow_fill, tiny_one_pass, window
from tests.models import random_source

COPIES = st.sampled_from(["none", "uniform", "soft"])


def _rows(source: Source) -> list[list[int]]:
    return [ids[:length] for ids, length in zip(source.ids.tolist(), source.lengths.tolist(), strict=True)]


@settings(max_examples=12)
@given(
    seed=st.integers(0, 1000),
    copy=COPIES,
    layers=st.integers(1, 2),
    spread=st.integers(0, 3),
    weight=st.sampled_from([0.0, 1.0, 2.5]),
)
def test_decoding_equals_a_loop_over_lengths(seed, copy, layers, spread, weight):
    model = tiny_one_pass(seed, copy=copy, decoder_layers=layers)
    source = random_source(3, 6, seed=seed)
    found = decoder(model, length_window=spread, length_weight=weight).decode(source)
    for row, ids in enumerate(_rows(source)):
        words, score, total = slow_fill(model, ids, window(model, ids, spread), weight)
        assert found.tokens[row] == words
        assert found.scores[row] == pytest.approx(score)
        assert found.hypotheses[row][0].log_probability == pytest.approx(total)


@settings(max_examples=12)
@given(
    seed=st.integers(0, 1000),
    copy=COPIES,
    norm=st.sampled_from(["post", "pre"]),
    tie=st.sampled_from(["all", "target", "none"]),
    dedup=st.integers(0, 2),
)
def test_a_batch_equals_its_rows(seed, copy, norm, tie, dedup):
    model = tiny_one_pass(seed, copy=copy, norm=norm, tie=tie)
    source = random_source(5, 9, seed=seed)
    found = decoder(model, dedup=dedup)
    together = found.decode(source)
    apart = [found.decode(Source.of([ids])) for ids in _rows(source)]
    assert together.tokens == [one.tokens[0] for one in apart]
    assert together.scores == pytest.approx([one.scores[0] for one in apart])
    few = found.decode(source, capacity=2)
    assert few.tokens == together.tokens
    assert few.iterations == 3


def test_portions_change_nothing(monkeypatch):
    model, source = tiny_one_pass(1), random_source(5, 9)
    whole = decoder(model).decode(source)
    monkeypatch.setattr(filling, "MAX_LOGITS_CPU", 1)
    monkeypatch.setattr(filling, "MAX_LOGITS", 1)
    monkeypatch.setattr(decoding, "MAX_NUMBERS", 1)
    parts = decoder(model).decode(source)
    assert parts.tokens == whole.tokens
    assert (whole.calls, parts.calls) == (2, 6)  # one encoder pass; one pass over canvases, or one for each sentence


def test_one_iteration_whose_writes_are_the_output():
    model, source = tiny_one_pass(1), random_source(6, 9)
    for dedup in (0, 2):
        decoded = decoder(model, dedup=dedup).decode(source, trace=True, capacity=4)
        assert decoded.traces is not None
        for trace, tokens in zip(decoded.traces, decoded.tokens, strict=True):
            assert trace.iterations == 1
            assert trace.replay() == tokens
            assert trace.committed == len(tokens) + 1


@settings(max_examples=20)
@given(
    seed=st.integers(0, 100),
    least=st.integers(0, 6),
    more=st.integers(0, 3),
    banned=st.lists(st.integers(1, 10).filter(lambda token: token != EOS), max_size=4),
    spread=st.integers(0, 4),
)
def test_limits_are_kept(seed, least, more, banned, spread):
    model, source = tiny_one_pass(seed), random_source(4, 9, seed=seed)
    limits = Limits(min_length=least, max_length=max(1, least + more), banned=tuple(banned))
    found = decoder(model, length_window=spread).decode(source, limits)
    for ids, tokens in zip(_rows(source), found.tokens, strict=True):
        assert max(1, least) <= len(tokens) <= max(1, least + more)
        assert not set(tokens) & {PAD, START, MASK, EOS, *banned}
        assert tokens == slow_fill(model, ids, window(model, ids, spread, limits), banned=tuple(banned))[0]


def test_no_output_outgrows_the_models_positions():
    model = tiny_one_pass(longest=8, length=LengthRegression(3.0, 2.0))
    found = decoder(model).decode(Source.of([[5, 6, 7, 8, EOS], [5, EOS]]))
    assert [len(tokens) + 1 <= 8 for tokens in found.tokens] == [True, True]


def test_nothing_left_to_say_is_refused():
    with pytest.raises(OptionError, match="banned expects to leave at least one id that is a word"):
        decoder(tiny_one_pass()).decode(Source.of([[5, EOS]]), Limits(banned=(1, *range(5, 11))))


def test_no_window_gives_the_predicted_length():
    source, line = random_source(6, 9), LengthRegression(1.5, 1.0)
    found = decoder(tiny_one_pass(length=line), length_window=0).decode(source)
    assert [len(tokens) + 1 for tokens in found.tokens] == line.predict(source.lengths).tolist()


def test_a_certain_length_outweighs_sure_words():
    """Weighted enough, the line decides; its own weight aside, it does not."""
    source = random_source(8, 9)
    model = tiny_one_pass(length=LengthRegression(1.0, 0.0, 0.0))
    sure = decoder(model, length_weight=1e6).decode(source)
    assert [len(tokens) + 1 for tokens in sure.tokens] == source.lengths.clamp(min=2).tolist()
    free = decoder(model, length_weight=0.0).decode(source)
    unknown = decoder(tiny_one_pass(length=LengthRegression(1.0, 0.0))).decode(source)
    assert free.tokens == unknown.tokens != sure.tokens


def test_repetitions_are_taken_out():
    source = random_source(12, 9, seed=3)
    model = tiny_one_pass(3)
    plain, short = (decoder(model, dedup=dedup).decode(source) for dedup in (0, 1))
    expected = [[t for i, t in enumerate(row) if not i or row[i - 1] != t] for row in plain.tokens]
    assert short.tokens == expected != plain.tokens
    assert short.scores == plain.scores


def test_signature_and_options():
    found = decoder(tiny_one_pass()).signature
    assert found.startswith("non-autoregressive|length_window:3|length_weight:1.0|dedup:0|eager|fp64")
    for bad in ({"length_window": -1}, {"length_weight": -0.5}, {"dedup": -1}):
        with pytest.raises(OptionError, match=f"{next(iter(bad))} expects a (whole )?number from 0 to "):
            decoder(tiny_one_pass(), **bad)
    with pytest.raises(OptionError, match="copy_spread expects a number above 0, at most 1000000, found 0"):
        tiny_one_pass(copy_spread=0.0)


def test_places_run_from_the_first_word_to_the_end():
    found = places_in_source(torch.tensor([5, 5, 1, 3]), torch.tensor([3, 9, 4, 1]), 9)
    assert found[0].tolist() == [0, 2, 4, 4, 4, 4, 4, 4, 4]
    assert found[1].tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4]
    assert found[2].tolist() == [0] * 9  # nothing but EOS
    assert found[3].tolist() == [0, 2, 2, 2, 2, 2, 2, 2, 2]


def _placed(runner: EagerRunner, **changes: object) -> OnePass:
    return runner.place(tiny_one_pass(0, **changes))


@pytest.mark.parametrize("copy", ["none", "uniform", "soft"])
def test_single_precision(copy):
    runner, source = EagerRunner("cpu", "fp32"), random_source(6, 9)
    there = NonAutoregressive(_placed(runner, copy=copy), runner).decode(source)
    assert there.scores == pytest.approx(decoder(tiny_one_pass(0, copy=copy)).decode(source).scores, rel=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("copy", ["none", "uniform", "soft"])
def test_on_a_gpu(precision, copy):
    """What is found there scores what is found here in double precision, as far as the precision goes."""
    runner, source = EagerRunner("cuda:0", precision), random_source(6, 9)
    there = NonAutoregressive(_placed(runner, copy=copy), runner).decode(source)
    here = decoder(tiny_one_pass(0, copy=copy)).decode(source)
    assert there.scores == pytest.approx(here.scores, abs=1e-3 if precision == "fp32" else 0.2, rel=1e-3)
