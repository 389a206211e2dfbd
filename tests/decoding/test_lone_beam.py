"""Beam search of one sentence in plain numbers against the tensor code for many: the same, to the last bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, Decoded, Limits, Source
from longstride.nn.cache import Cache
from longstride.runtime.eager import EagerRunner
from longstride.search import beam
from longstride.search.length_penalty import LengthPenalty
from longstride.search.lone_beam import Continuations, LoneBeam
from longstride.search.ranking import best_first, hypotheses
from longstride.systems.autoregressive import beam_reading, beam_session
from longstride.systems.autoregressive.decoder import Beam, BeamOptions
from longstride.systems.autoregressive.lone_rows import LoneRows
from tests.decoding.test_beam import PENALTIES
from tests.decoding.test_greedy import LIMITS
from tests.models import random_source, tiny_model


def by_tensor_code(decoder: Beam, source: Source, limits: Limits) -> Decoded:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam_session, "alone", lambda runner, capacity: False)
        return decoder.decode(source, limits, capacity=1, trace=True)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    width=st.integers(1, 18),
    longest=st.integers(1, 9),
    penalty=PENALTIES,
    steps=st.sampled_from([0.0, 0.5, 4.0]),
    data=st.data(),
)
def test_a_search_over_random_candidates(seed, width, longest, penalty, steps, data):
    """Scores in few steps are often equal; forbidden tokens, several ends, and hypotheses that must end."""
    n_best = data.draw(st.integers(1, width))
    rule = LengthPenalty(*penalty)
    generator = torch.Generator().manual_seed(seed)
    table = beam.BeamTable.empty(1, width, longest + 1, torch.device("cpu"))
    table.open(torch.tensor([0]), torch.tensor([longest]))
    lone = LoneBeam(width, n_best, rule(torch.arange(longest + 3)).tolist())
    lone.open(longest)
    while not lone.done:
        shape = (1, width, 2 * width)
        gained = -torch.rand(shape, dtype=torch.float64, generator=generator) * 3
        gained = (gained * steps).round() / steps if steps else gained
        gained = gained.sort(dim=2, descending=True, stable=True).values
        gained[torch.rand(shape, generator=generator) < 0.1] = beam.DEAD
        ids = EOS + torch.randint(0, 6, shape, generator=generator)
        end = -torch.rand(1, width, dtype=torch.float64, generator=generator)
        every = [Continuations(*one) for one in zip(ids[0].tolist(), gained[0].tolist(), end[0].tolist(), strict=True)]
        parents, last = beam.advance(table, beam.Candidates(ids, gained, end), rule, n_best)
        found = lone.advance(every[: len(lone.live)])
        alive = table.live[0] > beam.DEAD
        assert lone.live == table.live[0, alive].tolist()
        assert found == parents[0, alive].tolist()
        assert [tokens[-1] for tokens in lone.tokens] == last[0, alive].tolist()
        assert lone.tokens == table.tokens[0, alive, : lone.length].tolist()
        assert lone.length == int(table.length) <= longest + 1
        assert lone.done == bool(table.done)
    ended = (table.finished, table.finished_length, table.finished_tokens)
    scores, totals, lengths, tokens = best_first(n_best, beam.final_scores(table, rule), *ended)
    assert lone.outputs() == hypotheses(tokens, lengths, scores, totals)[0]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 3),
    width=st.integers(1, 6),
    penalty=PENALTIES,
    limits=LIMITS,
    sharpness=st.sampled_from([0.0, 0.5, 1.5, 3.0]),
    models=st.integers(1, 3),
    precision=st.sampled_from(["fp64", "fp32"]),
    data=st.data(),
)
def test_decoding_by_models(seed, rows, width, penalty, limits, sharpness, models, precision, data):
    """Traces too; without sharpness all tokens are equally likely."""
    n_best = data.draw(st.integers(1, width))
    runner = EagerRunner(precision=precision)
    ensemble = [runner.place(tiny_model(seed + number, sharpness=sharpness)) for number in range(models)]
    decoder = Beam(ensemble, runner, BeamOptions(width, *penalty, n_best))
    source = random_source(rows, 9, seed=seed)
    assert isinstance(decoder.start(1, limits, source.longest).table, LoneRows)
    found = decoder.decode(source, limits, capacity=1, trace=True)
    assert found == by_tensor_code(decoder, source, limits)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), longest=st.integers(17, 40))
def test_longer_than_a_span_of_the_cache(seed, longest):
    decoder = Beam([tiny_model(seed, sharpness=0.5)], EagerRunner(precision="fp64"), BeamOptions(4))
    source, limits = random_source(1, 12, seed=seed), Limits(max_length=longest, min_length=longest - 2)
    assert decoder.decode(source, limits, trace=True) == by_tensor_code(decoder, source, limits)


@given(
    seed=st.integers(0, 10_000),
    vocabulary=st.integers(5, 300),
    count=st.integers(1, 12),
    early=st.booleans(),
    steps=st.booleans(),
    least=st.sampled_from([-1.0, -3.0, -5.0, -7.0]),
)
def test_leaving_out_what_is_too_unlikely_changes_nothing_else(seed, vocabulary, count, early, steps, least):
    logits = torch.randn(vocabulary, generator=torch.Generator().manual_seed(seed)) * 3
    logits = logits.round() if steps else logits
    forbidden = torch.tensor([0, 2, 4])
    ids, scores, end = beam_reading.of_row(logits, forbidden, early, count)
    some, of_some, same_end = beam_reading.of_row(logits, forbidden, early, count, least)
    reaching = sum(score >= least for score in scores)
    assert some[:reaching] == ids[:reaching]
    assert of_some == scores[: len(of_some)]
    assert len(of_some) >= reaching
    assert end == same_end


@given(seed=st.integers(0, 1000), slots=st.integers(1, 5), half=st.booleans(), data=st.data())
def test_rows_that_move_in_place(seed, slots, half, data):
    rows = 4
    parents = data.draw(st.lists(st.integers(0, rows - 1), min_size=rows, max_size=rows))
    kind = torch.bfloat16 if half else torch.float64
    values = torch.randn(2, 3, rows, 2, 5, 4, generator=torch.Generator().manual_seed(seed)).to(kind)
    moved, expected = (Cache(*values.clone().unbind()) for _ in range(2))
    there = [row for row, parent in enumerate(parents) if row != parent]
    moved.move(there, [parents[row] for row in there], slots)
    expected.shuffle(torch.tensor(parents), slots)
    assert torch.equal(moved.keys, expected.keys)
    assert torch.equal(moved.values, expected.values)
