"""Beam search against its slow twin and against all outputs there are."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import EOS, Limits, OptionError, Source
from longstride.runtime.eager import EagerRunner
from longstride.search.beam import Beam as Bookkeeping
from longstride.search.beam import BeamState, Search
from longstride.search.continuations import DEAD, SlotScores
from longstride.search.length_penalty import LengthPenalty
from longstride.systems.autoregressive.decoder import Beam, BeamOptions, Greedy
from tests.decoding import oracles
from tests.decoding.test_greedy import LIMITS
from tests.models import random_source, tiny_model

RUNNER = EagerRunner(precision="fp64")
PENALTIES = st.tuples(st.sampled_from(["gnmt", "average", "none"]), st.sampled_from([-0.5, 0.0, 0.6, 1.0, 1.5]))


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 4),
    capacity=st.integers(1, 4),
    width=st.integers(1, 4),
    penalty=PENALTIES,
    limits=LIMITS,
    sharpness=st.sampled_from([0.5, 1.5, 3.0]),
    models=st.integers(1, 2),
    data=st.data(),
)
def test_equals_the_slow_twin(seed, rows, capacity, width, penalty, limits, sharpness, models, data):
    n_best = data.draw(st.integers(1, width))
    ensemble = [tiny_model(seed + number, sharpness=sharpness) for number in range(models)]
    options = BeamOptions(width, penalty[0], penalty[1], n_best)
    source = random_source(rows, 5, seed=seed)
    decoded = Beam(ensemble, RUNNER, options).decode(source, limits, capacity=capacity, trace=True)
    for row in range(rows):
        ids = source.ids[row, : source.lengths[row]].tolist()
        expected = oracles.beam(ensemble, ids, limits, width, LengthPenalty(*penalty), n_best)
        found = decoded.hypotheses[row]
        assert [h.tokens for h in found] == [tokens for tokens, _ in expected]
        assert [h.score for h in found] == pytest.approx([score for _, score in expected], abs=1e-9)
        assert decoded.traces[row].replay() == expected[0][0]


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), limits=LIMITS, penalty=PENALTIES, sharpness=st.sampled_from([0.5, 3.0]))
def test_width_one_is_greedy(seed, limits, penalty, sharpness):
    model = tiny_model(seed, sharpness=sharpness)
    source = random_source(4, 6, seed=seed)
    beam = Beam([model], RUNNER, BeamOptions(1, *penalty)).decode(source, limits)
    greedy = Greedy(model, RUNNER).decode(source, limits)
    assert beam.tokens == greedy.tokens
    found = [row[0].log_probability for row in beam.hypotheses]
    assert found == pytest.approx([row[0].log_probability for row in greedy.hypotheses], abs=1e-9)


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000), penalty=PENALTIES, min_length=st.integers(0, 1))
def test_a_wide_beam_equals_enumeration(seed, penalty, min_length):
    """Two words and unk, at most three tokens: 3 + 9 + 27 + 1 outputs, all of which fit into the beam."""
    model = tiny_model(seed, vocabulary=7, sharpness=1.0)
    limits = Limits(max_length=3, min_length=min_length)
    source = random_source(2, 4, vocabulary=7, seed=seed)
    width = 3 + 9 + 27 + 1 + 27
    decoded = Beam([model], RUNNER, BeamOptions(width, *penalty, n_best=5)).decode(source, limits)
    for row in range(2):
        ids = source.ids[row, : source.lengths[row]].tolist()
        expected = oracles.enumerate_all(model, ids, limits, LengthPenalty(*penalty))[:5]
        assert [h.tokens for h in decoded.hypotheses[row]] == [tokens for tokens, _ in expected]
        scores = [score for _, score in expected]
        assert [h.score for h in decoded.hypotheses[row]] == pytest.approx(scores, abs=1e-9)


@settings(max_examples=8)
@given(seed=st.integers(0, 1000), rows=st.integers(2, 7), capacity=st.integers(1, 7))
def test_a_batch_equals_its_rows_one_by_one(seed, rows, capacity):
    decoder = Beam([tiny_model(seed, sharpness=1.5)], RUNNER, BeamOptions(3))
    source, limits = random_source(rows, 8, seed=seed), Limits(max_ratio=1, max_extra=4)
    together = decoder.decode(source, limits, capacity=capacity).tokens
    alone = [Source.of([source.ids[row, : source.lengths[row]].tolist()]) for row in range(rows)]
    assert together == [decoder.decode(one, limits).tokens[0] for one in alone]


def test_empty_slots_may_be_dropped_before_outputs_are_taken():
    decoder, source = Beam([tiny_model(3, sharpness=1.5)], RUNNER, BeamOptions(2)), random_source(4, 6, seed=3)
    limits = Limits(max_length=3)
    session = decoder.start(4, limits, source.longest)
    tickets = session.admit(source)
    for _ in range(4):  # all are done then
        session.advance()
    for ticket in tickets[:2]:
        session.cancel(ticket)
    session.settle()
    assert session.capacity == 2
    found = {one.ticket: one.hypotheses[0].tokens for one in session.take_finished()}
    assert found == dict(zip(tickets[2:], decoder.decode(source, limits).tokens[2:], strict=True))


@given(seed=st.integers(0, 10_000), width=st.integers(1, 12))
def test_among_equal_candidates_the_first_come_first(seed, width):
    """On a GPU `topk` takes any of them, so that two runs, or a kernel and its twin, could go different ways."""
    generator = torch.Generator().manual_seed(seed)
    state = BeamState.empty(1, width, 4, torch.device("cpu"))
    state.open(torch.tensor([0]), torch.tensor([3]))
    state.live = torch.randint(-2, 1, (1, width), generator=generator).double().sort(descending=True).values
    gained = torch.randint(-2, 1, (1, width, 1, width), generator=generator).double().sort(descending=True).values
    ids = 5 + torch.arange(width * width).view(1, width, 1, width)
    totals = (state.live[..., None, None] + gained).flatten().tolist()
    expected = sorted(range(len(totals)), key=lambda at: (-totals[at], at))[:width]
    bookkeeping = Bookkeeping(Search(width, 1, LengthPenalty("none", 0.0)), 4, torch.device("cpu"))
    scores = SlotScores(ids, gained, torch.full((1, width, 1), DEAD))
    parents, last = bookkeeping.advance(state, scores)
    assert last[0, :, 0].tolist() == [5 + at for at in expected]
    assert parents[0].tolist() == [at // width for at in expected]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    sentences=st.integers(1, 3),
    width=st.integers(1, 6),
    step=st.integers(1, 3),
    longest=st.integers(1, 9),
    penalty=PENALTIES,
    rounded=st.sampled_from([0.0, 0.5, 4.0]),
    earliest=st.integers(0, 2),
    count_dropped=st.booleans(),
    data=st.data(),
)
def test_numpy_and_pytorch_keep_the_same_books(
    seed, sentences, width, step, longest, penalty, rounded, earliest, count_dropped, data
):
    """To the bit; scores in few steps are often equal; forbidden words, several ends, hypotheses that must end."""
    n_best = data.draw(st.integers(1, width))
    search = Search(width, n_best, LengthPenalty(*penalty), step, earliest, count_dropped)
    generator, columns = torch.Generator().manual_seed(seed), longest + step
    tensors = BeamState.empty(sentences, width, columns, torch.device("cpu"))
    tensors.open(torch.arange(sentences), torch.randint(1, longest + 1, (sentences,), generator=generator))
    arrays = BeamState(*(buffer.clone() for buffer in tensors.buffers)).numpy()
    both = [(Bookkeeping(search, columns, torch.device("cpu")), tensors), (Bookkeeping(search, columns, None), arrays)]
    for _ in range(longest + 2):
        gained = -torch.rand(sentences, width, step, width, dtype=torch.float64, generator=generator) * 3
        gained = (gained * rounded).round() / rounded if rounded else gained
        gained = gained.sort(dim=3, descending=True, stable=True).values
        gained[..., -1].masked_fill_(torch.rand(sentences, width, step, generator=generator) < 0.1, DEAD)
        ids = EOS + 1 + torch.randint(0, 6, gained.shape, generator=generator)
        end = -torch.rand(sentences, width, step, dtype=torch.float64, generator=generator) * 3
        scores = [SlotScores(ids, gained, end), SlotScores(ids.numpy(), gained.numpy(), end.numpy())]
        found = [beam.advance(state, given) for (beam, state), given in zip(both, scores, strict=True)]
        for ours, theirs in zip(found[1], found[0], strict=True):
            assert ours.tolist() == theirs.tolist()
        for ours, theirs in zip(arrays.buffers, tensors.buffers, strict=True):
            assert ours.tolist() == theirs.tolist()
        assert both[1][0].scores(arrays).tolist() == both[0][0].scores(tensors).tolist()
    assert bool(tensors.done.all())


def test_there_is_room_for_the_longest_output_by_any_ratio():
    """Where the product is a whole number but for rounding: EOS took the last word's place."""
    limits, source = Limits(max_length=128, max_ratio=0.29, max_extra=0, min_length=28), Source.of([[5] * 100 + [EOS]])
    found = Beam([tiny_model(0, longest=128)], RUNNER, BeamOptions(2)).decode(source, limits).tokens[0]
    assert len(found) == limits.longest_output(101)
    assert EOS not in found


def test_an_ensemble_of_one_model_twice_is_that_model():
    model = tiny_model(1, sharpness=1.0)
    source = random_source(5, 6, seed=1)
    once = Beam([model], RUNNER).decode(source)
    twice = Beam([model, model], RUNNER).decode(source)
    assert once.tokens == twice.tokens
    assert once.scores == pytest.approx(twice.scores)


@pytest.mark.parametrize(("options", "words"), [({"width": 0}, "width"), ({"width": 3, "n_best": 4}, "n_best")])
def test_bad_options_are_refused(options, words):
    with pytest.raises(OptionError, match=words):
        BeamOptions(**options)


def test_models_of_different_vocabularies_are_refused():
    with pytest.raises(OptionError, match="one vocabulary"):
        Beam([tiny_model(0), tiny_model(0, vocabulary=12)], RUNNER)


@settings(max_examples=30)
@given(PENALTIES, st.integers(1, 20), st.integers(0, 20))
def test_the_bound_is_the_largest_divisor(penalty, length, more):
    rule = LengthPenalty(*penalty)
    lengths = torch.arange(length, length + more + 1)
    assert float(rule(lengths[[0, -1]]).max()) == pytest.approx(float(rule(lengths).max()), rel=1e-12)


@settings(max_examples=50)
@given(
    kind=st.sampled_from(["gnmt", "average", "none"]),
    strength=st.floats(-2, 2),
    lengths=st.lists(st.integers(1, 2000), min_size=1, max_size=70),
)
def test_a_divisor_is_the_same_wherever_it_stands(kind, strength, lengths):
    """Else a score depends on how many stand beside it: PyTorch raises what vectors leave over by another function."""
    rule = LengthPenalty(kind, strength)
    assert rule(torch.tensor(lengths)).tolist() == [rule(torch.tensor(length)).item() for length in lengths]
