"""Words of a step that know their neighbour: true probabilities, found alike by every road, and worth having."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longstride.contract import EOS, START, Batch, Limits, OptionError, Source
from longstride.engine.pool import PoolKey
from longstride.nn.losses import Smoothing
from longstride.nn.transformer import Transformer
from longstride.runtime.eager import EagerRunner
from longstride.search.beam import Search
from longstride.search.length_penalty import LengthPenalty
from longstride.search.session import BeamSession
from longstride.systems.interleaved.beam import beam_table
from longstride.systems.interleaved.decoder import Interleaved, InterleavedOptions
from longstride.systems.interleaved.model import InterleavedModel, Interleaving
from longstride.systems.interleaved.objective import InterleavedObjective
from longstride.systems.interleaved.objective import likelihood as interleaved_likelihood
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.systems.interleaved.programs import tie
from longstride.systems.interleaved.slots import has_neighbour, neighbours, sentences_of, shifted
from tests.decoding import interleaved as twins
from tests.decoding.interleaved import LINKED, tiny_interleaved
from tests.decoding.test_beam import PENALTIES
from tests.decoding.test_greedy import LIMITS
from tests.decoding.test_interleaved import ENDING, ENDS, RUNNER, SHARPNESS, decoder, rows_of
from tests.models import random_source, tiny_model, tiny_options
from tests.training.test_drafter_objective import make_batch

linked = st.sampled_from(LINKED)
seeds = st.integers(0, 10_000)


def without(model: InterleavedModel) -> InterleavedModel:
    """The same weights, not linked."""
    options = {**vars(model.options), "link": 0, "vocabulary": None}
    interleaving = Interleaving(InterleavingOptions(**options)).double().eval().requires_grad_(False)
    interleaving.load_state_dict(
        {name: weight for name, weight in model.interleaving.state_dict().items() if not name.startswith("link.")}
    )
    return InterleavedModel(model.model, interleaving)


# --- who is whose neighbour ------------------------------------------------------------------------------------------


def test_the_neighbour_is_the_word_before_in_the_same_direction_and_step():
    words = torch.arange(5, 17)[None]
    options = InterleavingOptions(2, h=2, c=3, link=1, vocabulary=20)
    before, has = neighbours(words, 2)[0], has_neighbour(torch.arange(12), options)
    assert has.tolist() == [False, False, True, True, True, True] * 2
    assert [int(before[slot]) for slot in range(12) if has[slot]] == [5, 6, 7, 8, 11, 12, 13, 14]
    # In the sentence, linked words stand side by side: from the right end, each is given its right neighbour.
    sentence = twins.in_order(words[0].tolist(), options)
    for slot in range(12):
        if has[slot]:
            at, to = (sentence.index(int(word)) for word in (words[0, slot], before[slot]))
            assert at - to == (1 if slot % 2 == 0 else -1)


# --- what a link says ------------------------------------------------------------------------------------------------


def logits_of(model: InterleavedModel, words: Tensor, source: Tensor) -> Tensor:
    """[rows, slots, vocabulary] of known words, as training sees them"""
    memory = model.model.encode(source, None).expand(len(words), -1, -1)
    states, weight = model.projection(model.decode(shifted(words, model.options.step, START), memory, None), words)
    return states @ weight.t()


@settings(max_examples=20)
@given(seed=seeds, variant=linked, steps=st.integers(1, 3))
def test_step_by_step_equals_all_at_once(seed, variant, steps):
    model = tiny_interleaved(seed, variant)
    step, h, link = model.options.step, model.options.h, model.interleaving.link
    source = random_source(1, 6, seed=seed)
    words = torch.randint(5, 11, (2, steps * step), generator=torch.Generator().manual_seed(seed))
    whole = logits_of(model, words, source.ids)
    memory = model.model.encode_source(source.ids.expand(2, -1), source.lengths.expand(2))
    cache, inputs = model.model.new_cache(2, steps * step), shifted(words, step, START)
    layout = model.layout(cache.longest)
    for first in range(0, steps * step, step):
        here = slice(first, first + step)
        logits, factors = model.step_logits(inputs[:, here], torch.tensor([first] * 2), cache, memory, layout)
        torch.testing.assert_close(logits[:, :h], whole[:, first : first + h], atol=1e-9, rtol=1e-9)
        given = RUNNER.call(tie(link), logits[:, h:], factors[:, h:], words[:, first : first + step - h])
        torch.testing.assert_close(given, whole[:, first + h : first + step], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("variant", [{"h": 1, "c": 2}, {"h": 1, "c": 3}, {"h": 2, "c": 2}], ids=str)
def test_the_probabilities_of_all_a_step_may_hold_sum_to_one(variant):
    model = tiny_interleaved(4, {**variant, "link": 2}, vocabulary=6, sharpness=1.0)
    step = model.options.step
    before = [5, 1, 5, 1][:step]
    every = torch.tensor([[*before, *words] for words in itertools.product(range(6), repeat=step)])
    scores = logits_of(model, every, torch.tensor([[5, 5, EOS]])).log_softmax(-1)
    bundles = scores.gather(2, every[..., None])[:, step:, 0].sum(dim=1).exp()
    assert float(bundles.sum()) == pytest.approx(1.0, abs=1e-9)
    alone = logits_of(without(model), every, torch.tensor([[5, 5, EOS]])).log_softmax(-1)
    assert not torch.allclose(alone, scores)


# --- a link that says nothing ----------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(seed=seeds, variant=linked, end=ENDS, width=st.sampled_from([1, 3]), limits=LIMITS, ending=ENDING)
def test_a_link_of_zeros_is_no_link_to_the_bit(seed, variant, end, width, limits, ending):
    model = tiny_interleaved(seed, variant, ending, sharpness=1.5)
    model.interleaving.link.after.weight.zero_()
    source = random_source(3, 6, seed=seed)
    options = {"width": width, "n_best": min(width, 2), "end": end}
    found, expected = (decoder(one, **options).decode(source, limits, trace=True) for one in (model, without(model)))
    assert found.hypotheses == expected.hypotheses
    assert found.traces == expected.traces


@settings(max_examples=15)
@given(seed=seeds, variant=linked, lengths=st.lists(st.integers(1, 14), min_size=1, max_size=3))
def test_a_link_of_zeros_has_the_loss_of_none(seed, variant, lengths):
    model = tiny_interleaved(seed, variant)
    model.interleaving.link.after.weight.zero_()
    batch = make_batch(lengths, lengths, seed)
    objective = InterleavedObjective(Smoothing(0.1))
    losses = [objective.loss(one, objective.prepare(batch, torch.Generator())) for one in (model, without(model))]
    # One product of wider rows: whether its sums are made in the same order is the library's business.
    torch.testing.assert_close(losses[0].total, losses[1].total, atol=0, rtol=1e-13)
    scores = [interleaved_likelihood(one, RUNNER).log_probabilities(batch) for one in (model, without(model))]
    torch.testing.assert_close(scores[0], scores[1], atol=1e-12, rtol=1e-12)


def test_a_new_link_says_nothing_and_can_learn():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        options = InterleavingOptions(16, h=2, c=2, link=3, vocabulary=11)
        model = InterleavedModel(tiny_model(0), Interleaving(options).double()).requires_grad_(True)
    link = model.interleaving.link
    assert not link.after.weight.any()
    batch = make_batch([9, 14], [5, 5])
    objective = InterleavedObjective(Smoothing(0.1))
    objective.loss(model, objective.prepare(batch, torch.Generator())).total.backward()
    assert link.after.weight.grad.abs().sum() > 0
    before = link.before.weight.clone()
    model.begun()
    assert not torch.equal(link.before.weight, before)
    with torch.no_grad():
        link.after.weight[5] = 1.0
    before = link.before.weight.clone()
    model.begun()  # what has been learnt stays
    assert torch.equal(link.before.weight, before)
    tiny_interleaved(0, {"h": 2, "c": 2}).begun()


# --- search ----------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    seed=seeds, variant=linked, end=ENDS, limits=LIMITS, capacity=st.integers(1, 3), sharpness=SHARPNESS, ending=ENDING
)
def test_greedy_equals_the_slow_twin(seed, variant, end, limits, capacity, sharpness, ending):
    model = tiny_interleaved(seed, variant, ending, sharpness=sharpness)
    source = random_source(3, 6, seed=seed)
    decoded = decoder(model, end=end).decode(source, limits, capacity=capacity, trace=True)
    for row, ids in enumerate(rows_of(source)):
        tokens, total = twins.greedy(model, ids, limits, end == "paper")
        assert decoded.tokens[row] == tokens
        assert decoded.hypotheses[row][0].log_probability == pytest.approx(total, abs=1e-9)
        assert decoded.traces[row].replay() == tokens


@settings(max_examples=25)
@given(
    seed=seeds,
    variant=linked,
    end=ENDS,
    limits=LIMITS,
    capacity=st.integers(1, 3),
    width=st.integers(2, 4),
    sharpness=SHARPNESS,
    ending=ENDING,
    penalty=PENALTIES,
)
def test_beam_equals_the_slow_twin(seed, variant, end, limits, capacity, width, sharpness, ending, penalty):
    model = tiny_interleaved(seed, variant, ending, sharpness=sharpness)
    source = random_source(2, 5, seed=seed)
    options = {"width": width, "n_best": width, "length_penalty": penalty[0], "strength": penalty[1], "end": end}
    decoded = decoder(model, **options).decode(source, limits, capacity=capacity, trace=True)
    twin = twins.pruned_paper_beam if end == "paper" else twins.beam
    for row, ids in enumerate(rows_of(source)):
        expected = twin(model, ids, limits, width, LengthPenalty(*penalty), width)
        found = decoded.hypotheses[row]
        assert [h.score for h in found] == pytest.approx([score for _, score in expected], abs=1e-9)
        assert [h.tokens for h in found] == [tokens for tokens, _ in expected]
        assert decoded.traces[row].replay() == expected[0][0]


@settings(max_examples=12)
@given(
    seed=seeds,
    # Wide enough that no partial step is ever pruned: there are three words.
    sized=st.sampled_from([({"h": 1, "c": 2}, 3), ({"h": 1, "c": 3}, 9), ({"h": 2, "c": 2}, 27)]),
    max_length=st.integers(1, 5),
    sharpness=SHARPNESS,
    ending=ENDING,
    penalty=PENALTIES,
)
def test_a_wide_beam_searches_every_step_exhaustively(seed, sized, max_length, sharpness, ending, penalty):
    variant, width = sized
    limits = Limits(max_length=max_length, banned=(7,))
    model = tiny_interleaved(seed, {**variant, "link": 2}, ending, sharpness=sharpness, vocabulary=8)
    source = random_source(1, 3, vocabulary=8, seed=seed)
    options = {"end": "paper", "width": width, "n_best": 2, "length_penalty": penalty[0], "strength": penalty[1]}
    (found,) = decoder(model, **options).decode(source, limits).hypotheses
    expected = twins.paper_beam(model, rows_of(source)[0], limits, width, LengthPenalty(*penalty), 2)
    assert [h.score for h in found] == pytest.approx([score for _, score in expected], abs=1e-9)
    assert [h.tokens for h in found] == [tokens for tokens, _ in expected]


@settings(max_examples=15)
@given(seed=seeds, variant=linked, limits=LIMITS, ending=ENDING)
def test_a_beam_of_one_is_greedy_search(seed, variant, limits, ending):
    """Greedy search has a table of its own: this is the beam's, made to keep one hypothesis."""
    model = tiny_interleaved(seed, variant, ending, sharpness=1.5)
    source = random_source(3, 6, seed=seed)
    expected = decoder(model).decode(source, limits)
    step = model.options.step
    search = Search(1, 1, LengthPenalty("gnmt", 0.6), step, limits.min_length)
    key = PoolKey.of(RUNNER, "beam", source.rows, source.longest, 64)
    make = partial(beam_table, model, RUNNER, search, limits)
    session = BeamSession(key, make, 1, step, partial(sentences_of, options=model.options, dedup=0, eos=EOS))
    session.admit(source)
    found: dict[int, list[int]] = {}
    while len(found) < source.rows:
        session.advance()
        found |= {one.ticket: one.hypotheses[0].tokens for one in session.take_finished()}
    assert [found[row] for row in range(source.rows)] == expected.tokens


@settings(max_examples=10)
@given(seed=seeds, variant=linked, width=st.sampled_from([1, 3]), capacity=st.integers(1, 4))
def test_a_batch_gives_what_its_rows_give(seed, variant, width, capacity):
    model = tiny_interleaved(seed, variant, sharpness=1.5)
    source, limits = random_source(4, 7, seed=seed), Limits(max_length=12)
    together = decoder(model, width=width).decode(source, limits, capacity=capacity)
    for row, ids in enumerate(rows_of(source)):
        (alone,) = decoder(model, width=width).decode(Source.of([ids]), limits).hypotheses
        assert alone[0].tokens == together.tokens[row]
        assert alone[0].score == pytest.approx(together.scores[row], abs=1e-9)


# --- what it is for --------------------------------------------------------------------------------------------------


def learnt(variant: dict[str, Any], sentences: list[list[int]], steps: int = 80) -> InterleavedModel:
    """Whatever the source, any of these sentences, all equally often."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = Transformer(tiny_options(vocabulary=14, decoder_layers=1))
        options = InterleavingOptions(16, **variant, vocabulary=14 if variant.get("link") else None)
        whole = InterleavedModel(model, Interleaving(options)).requires_grad_(True).train()
        whole.begun()
        objective = InterleavedObjective(Smoothing(0.0))
        batch = batch_of(sentences)
        optimizer = torch.optim.Adam(whole.parameters())
        for number in range(steps):
            optimizer.param_groups[0]["lr"] = 0.02 * (1 - number / steps)
            optimizer.zero_grad()
            objective.loss(whole, objective.prepare(batch, torch.Generator())).total.backward()
            optimizer.step()
    return whole.eval().requires_grad_(False)


def batch_of(sentences: list[list[int]]) -> Batch:
    """All of the same source, so that nothing but chance tells which it is."""
    target = torch.tensor(sentences)
    rows, length = target.shape
    source = torch.tensor([[6, EOS]]).expand(rows, -1)
    return Batch(source, target, torch.full((rows,), 2), torch.full((rows,), length), torch.arange(rows))


A, B, C, D, E, F, G, H = range(5, 13)


def test_words_that_must_agree():
    """A B or C D: two words at once that do not know of each other say A D as often."""
    both = [[A, B, EOS], [C, D, EOS]]
    asked = [*both, [A, D, EOS], [C, B, EOS]]
    runner = EagerRunner()
    apart, together = (learnt({"h": 1, "c": 2, **more}, both) for more in ({}, {"link": 2}))
    for model, expected in ((apart, [0.25] * 4), (together, [0.5, 0.5, 0.0, 0.0])):
        found = interleaved_likelihood(model, runner).log_probabilities(batch_of(asked)).sum(dim=1).exp()
        assert found.tolist() == pytest.approx(expected, abs=0.05)
    decoded = decoder_of(together, width=4, n_best=2).decode(Source.of([[6, EOS]]))
    assert sorted(one.tokens for one in decoded.hypotheses[0]) == [[A, B], [C, D]]
    assert decoder_of(together).decode(Source.of([[6, EOS]])).tokens[0] in ([A, B], [C, D])


def test_words_that_must_agree_at_either_end():
    """From the right, a word is given its right neighbour; the two ends do not know of each other, and need not."""
    every = [[*left, *right, EOS] for left in ([A, B], [C, D]) for right in ([E, F], [G, H])]
    wrong = [[A, D, E, F, EOS], [A, B, E, H, EOS], [C, B, G, F, EOS]]
    model = learnt({"h": 2, "c": 2, "link": 2}, every, steps=160)
    found = interleaved_likelihood(model, EagerRunner()).log_probabilities(batch_of(every + wrong)).sum(dim=1).exp()
    assert found.tolist() == pytest.approx([0.25] * 4 + [0.0] * 3, abs=0.05)
    assert [*decoder_of(model).decode(Source.of([[6, EOS]])).tokens[0], EOS] in every


def decoder_of(model: InterleavedModel, **options: Any) -> Interleaved:
    return Interleaved(model.model, model.interleaving, EagerRunner(), InterleavedOptions(**options))


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"link": 4}, "link expects c 2 or more, found 1: no two words of a step are neighbours."),
        ({"link": -1}, "link expects a whole number from 0 to 65536, found -1."),
        ({"c": 2, "link": 4, "vocabulary": None}, "link expects the vocabulary of the Transformer"),
    ],
)
def test_bad_options_are_refused(settings, told):
    with pytest.raises(OptionError) as refused:
        InterleavingOptions(**{"width": 2, "vocabulary": 9, **settings})
    assert told in str(refused.value)


def test_a_link_for_another_vocabulary_is_refused():
    with pytest.raises(OptionError, match="a vocabulary of 12, found 11"):
        InterleavedModel(tiny_model(0), Interleaving(InterleavingOptions(16, c=2, link=2, vocabulary=12)))
