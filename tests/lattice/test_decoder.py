"""Lattice decoding from ids to ids: against enumeration, in batches, within limits."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, PAD, START, Limits, OptionError, Source
from longstride.runtime.eager import EagerRunner
from longstride.search.lengths import LengthRegression
from longstride.systems.lattice import pipeline
from longstride.systems.lattice.candidates import ScoredCandidates
from longstride.systems.lattice.decoder import LatticeDecoder
from longstride.systems.lattice.model import Scorer
from longstride.systems.lattice.pipeline import LatticeOptions
from longstride.systems.lattice.scoring import place_scores
from tests.lattice.models import VOCABULARY, FakeSource, decoder, tiny_scorer
from tests.models import random_source


def _slow(
    model: Scorer, ids: list[int], words: list[list[int]], lengths: range, order: int
) -> list[tuple[float, list[int]]]:
    """Every output of these lengths (EOS counted), scored word by word with a forward pass each; best first."""
    memory = model.encode(torch.tensor([ids]), None)
    known: dict[tuple[int, tuple[int, ...]], torch.Tensor] = {}

    def after(position: int, before: tuple[int, ...]) -> torch.Tensor:
        if (position, before) not in known:
            slots = torch.arange(position - len(before), position + 1)
            hidden = model.decode(torch.tensor([[START, *before]]), memory, None, positions=slots)
            known[position, before] = model.logits(hidden)[0, -1].log_softmax(-1)
        return known[position, before]

    found = []
    for length in lengths:
        for output in itertools.product(*words[: length - 1]):
            spelt = [*output, EOS]
            total = 0.0
            for position, word in enumerate(spelt):
                before = tuple(spelt[max(0, position - order + 1) : position])
                total += float(after(position, before)[word])
            found.append((total, list(output)))
    return sorted(found, key=lambda item: -item[0])


@settings(max_examples=8)
@given(seed=st.integers(0, 1000), order=st.sampled_from([2, 3]), window=st.integers(0, 1))
def test_decoding_equals_enumeration(seed, order, window):
    model = tiny_scorer(seed)
    source = random_source(2, 4, seed=seed)
    decoded = decoder(model, order=order, length_window=window, candidates=3, n_best=3).decode(source)
    for row in range(2):
        length = int(source.lengths[row])
        ids = source.ids[row, :length].tolist()
        predicted = int(LengthRegression().predict(torch.tensor(length)))
        words = FakeSource().candidates(torch.tensor([ids]), torch.tensor([length]), 8, 3).ids[0].tolist()
        lengths = range(max(2, predicted - window), predicted + window + 1)
        expected = _slow(model, ids, words, lengths, order)[:3]
        found = decoded.hypotheses[row]
        assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in expected]
        assert [hypothesis.log_probability for hypothesis in found] == pytest.approx([score for score, _ in expected])
        assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in expected])


@settings(max_examples=6)
@given(seed=st.integers(0, 1000), order=st.sampled_from([2, 3]), weight=st.sampled_from([0.5, 20.0]))
def test_a_prior_on_lengths_ranks_by_both(seed, order, weight):
    """Against enumeration again; the log-probability stays that of the words."""
    model, regression = tiny_scorer(seed), LengthRegression(1.0, 0.4, 0.8)
    source = random_source(2, 4, seed=seed)
    options = LatticeOptions(candidates=2, length_window=1, order=order, n_best=3, length_prior=weight)
    found = LatticeDecoder(model, FakeSource(), regression, EagerRunner("cpu", "fp64"), options).decode(source)
    for row in range(2):
        length = int(source.lengths[row])
        ids = source.ids[row, :length].tolist()
        predicted = int(regression.predict(torch.tensor(length)))
        words = FakeSource().candidates(torch.tensor([ids]), torch.tensor([length]), 8, 2).ids[0].tolist()
        lengths = range(max(2, predicted - 1), predicted + 2)
        expected = [
            (total - weight * ((len(tokens) - (length - 1 + 0.4 if length > 1 else 1.0)) / 0.8) ** 2 / 2, total, tokens)
            for total, tokens in _slow(model, ids, words, lengths, order)
        ]
        expected.sort(key=lambda item: -item[0])
        shown = [(one.score, one.log_probability) for one in found.hypotheses[row]]
        assert [one.tokens for one in found.hypotheses[row]] == [tokens for _, _, tokens in expected[:3]]
        assert shown == [pytest.approx((score, total)) for score, total, _ in expected[:3]]


@settings(max_examples=10)
@given(
    seed=st.integers(0, 1000),
    order=st.sampled_from([2, 3]),
    construction=st.sampled_from(["tables", "model"]),
    normalise=st.sampled_from(["vocabulary", "candidates"]),
    missing=st.sampled_from([0.0, 0.5]),
    kept=st.sampled_from([None, 2]),
)
def test_a_batch_equals_its_rows(seed, order, construction, normalise, missing, kept):
    model, source = tiny_scorer(seed), random_source(5, 9, seed=seed)
    settings = {"order": order, "construction": construction, "normalise": normalise, "n_best": 2, "kept": kept}
    found = decoder(model, FakeSource(missing=missing), **settings)
    together = found.decode(source)
    apart = [found.decode(source.slice(row, row + 1)) for row in range(5)]
    assert together.tokens == [one.tokens[0] for one in apart]
    assert together.scores == pytest.approx([one.scores[0] for one in apart])
    assert found.decode(source, capacity=2).tokens == together.tokens


def test_passes_of_few_rows_change_nothing(monkeypatch):
    model, source = tiny_scorer(1), random_source(5, 9)
    whole = decoder(model).decode(source)
    monkeypatch.setattr(pipeline, "MAX_NUMBERS", 1)
    parts = decoder(model).decode(source)
    assert parts.tokens == whole.tokens
    assert (whole.calls, parts.calls) == (2, 6)  # one encoder pass, one head per pass


@pytest.mark.parametrize("seed", range(5))
def test_scan_finds_what_serial_finds(seed):
    model, source = tiny_scorer(seed), random_source(4, 9, seed=seed)
    assert decoder(model, search="scan").decode(source).tokens == decoder(model).decode(source).tokens


def test_kept_candidates_alone_are_searched():
    """The best path through a lattice of some words is no better than the best through all of them, unless it is it."""
    model, source = tiny_scorer(1), random_source(4, 9)
    every = decoder(model).decode(source)
    assert decoder(model, kept=4).decode(source).tokens == every.tokens
    lattice, _ = decoder(model, kept=2).lattices(source)
    assert lattice.ids.shape[2] == 2 + 2  # EOS and PAD stand beside them
    some = decoder(model, kept=2).decode(source).scores
    assert all(one <= best + 1e-9 for one, best in zip(some, every.scores, strict=True))


def test_one_iteration_whose_writes_are_the_output():
    model, source = tiny_scorer(1), random_source(4, 9)
    decoded = decoder(model).decode(source, trace=True)
    assert decoded.traces is not None
    for trace, tokens in zip(decoded.traces, decoded.tokens, strict=True):
        assert trace.iterations == 1
        assert trace.replay() == tokens
        assert trace.committed == len(tokens) + 1


@settings(max_examples=15)
@given(seed=st.integers(0, 100), least=st.integers(0, 6), more=st.integers(0, 3), missing=st.sampled_from([0.0, 1.0]))
def test_limits_are_kept(seed, least, more, missing):
    model, source = tiny_scorer(seed), random_source(4, 9, seed=seed)
    limits = Limits(min_length=least, max_length=max(1, least + more), banned=(1, 5, 6))
    for tokens in decoder(model, FakeSource(missing=missing)).decode(source, limits).tokens:
        assert max(1, least) <= len(tokens) <= max(1, least + more)
        assert not set(tokens) & {PAD, START, EOS, 1, 5, 6}


def test_no_window_gives_the_predicted_length():
    source = random_source(6, 9)
    found = decoder(tiny_scorer(), slope=1.5, intercept=1.0, length_window=0).decode(source)
    predicted = LengthRegression(1.5, 1.0).predict(source.lengths)
    assert [len(tokens) + 1 for tokens in found.tokens] == predicted.tolist()


def test_one_candidate_gives_the_tables_own_choice():
    source = Source.of([[5, 6, 7, EOS]])
    found = decoder(tiny_scorer(), candidates=1, length_window=0).decode(source)
    words = FakeSource().candidates(source.ids, source.lengths, 4, 1).ids[0, :3, 0].tolist()
    assert found.tokens == [words]


def test_no_more_outputs_than_there_are():
    found = decoder(tiny_scorer(), candidates=1, length_window=0, n_best=4).decode(Source.of([[5, 6, EOS]]))
    assert len(found.hypotheses[0]) == 1


def test_signature_and_options():
    assert decoder(tiny_scorer()).signature.startswith(
        "lattice|candidates:4|length_window:3|order:2|construction:tables"
    )
    for bad in ({"candidates": 0}, {"length_window": -1}, {"n_best": 0}, {"order": 4}, {"length_prior": -1.0}):
        with pytest.raises(OptionError, match=next(iter(bad))):
            decoder(tiny_scorer(), **bad)
    for bad in ({"order": 3}, {"n_best": 2}):
        with pytest.raises(OptionError, match="scan expects order 2 and n_best 1"):
            decoder(tiny_scorer(), search="scan", **bad)
    with pytest.raises(OptionError, match="at most 2, what the scorer was trained with"):
        decoder(tiny_scorer(order=2), order=3)


def test_single_precision():
    runner = EagerRunner("cpu", "fp32")
    model = runner.place(tiny_scorer(0, torch.float32))
    found = LatticeDecoder(model, FakeSource(), LengthRegression(), runner).decode(random_source(2, 4))
    assert all(found.tokens)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("options", [{}, {"search": "scan"}, {"order": 3}, {"normalise": "candidates"}])
def test_on_a_gpu(precision, options):
    """What a search there finds scores what a search here in double precision finds, as far as the precision goes."""
    source = random_source(6, 9)
    runner = EagerRunner("cuda:0", precision)
    model = runner.place(tiny_scorer(0))
    chosen = LatticeOptions(candidates=4, **options)
    there = LatticeDecoder(model, FakeSource(), LengthRegression(), runner, chosen).decode(source)
    here = decoder(tiny_scorer(0), **options).decode(source)
    tolerance = 1e-3 if precision == "fp32" else 1.0
    assert there.scores == pytest.approx(here.scores, abs=tolerance, rel=1e-4 if precision == "fp32" else 0.1)


def test_the_scorers_own_candidates():
    """Proposing from an encoder output of its own gives the lattice that decoding searches."""
    model, source = tiny_scorer(3), random_source(3, 6)
    found = decoder(model, length_window=1, construction="model")
    own = ScoredCandidates(partial(place_scores, model), VOCABULARY, EagerRunner("cpu", "fp64"))
    given = LatticeDecoder(model, own, LengthRegression(), EagerRunner("cpu", "fp64"), found.options)
    assert given.decode(source).tokens == found.decode(source).tokens
