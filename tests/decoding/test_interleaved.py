"""The interleaved decoder: equal to the autoregressive one where it is one, to its slow twin everywhere."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.contract import DTYPES, EOS, Limits, OptionError, Source
from longstride.runtime.eager import EagerRunner
from longstride.search.length_penalty import LengthPenalty
from longstride.systems.autoregressive.decoder import Beam, BeamOptions, Greedy
from longstride.systems.interleaved.decoder import Interleaved, InterleavedOptions
from longstride.systems.interleaved.model import InterleavedModel
from tests.decoding import interleaved as twins
from tests.decoding.interleaved import EVERY, tiny_interleaved
from tests.decoding.test_beam import PENALTIES
from tests.decoding.test_greedy import LIMITS
from tests.decoding.test_interleaved_search import slowly
from tests.models import random_source

RUNNER = EagerRunner(precision="fp64")
ENDS = st.sampled_from(["any-direction", "paper"])
SHARPNESS = st.sampled_from([0.5, 1.5, 3.0])
ENDING = st.sampled_from([0.0, 1.0, 2.0])


def decoder(model: InterleavedModel, **options: object) -> Interleaved:
    return Interleaved(model.model, model.interleaving, RUNNER, InterleavedOptions(**options))  # type: ignore[arg-type]


def rows_of(source: Source) -> list[list[int]]:
    return [source.ids[row, : source.lengths[row]].tolist() for row in range(source.rows)]


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), limits=LIMITS, capacity=st.integers(1, 4), sharpness=SHARPNESS)
def test_one_direction_and_one_word_are_greedy_search(seed, limits, capacity, sharpness):
    model = tiny_interleaved(seed, {"h": 1, "c": 1}, sharpness=sharpness)
    source = random_source(4, 6, seed=seed)
    found = decoder(model).decode(source, limits, capacity=capacity, trace=True)
    expected = Greedy(model.model, RUNNER).decode(source, limits, capacity=capacity, trace=True)
    assert found.tokens == expected.tokens
    assert found.traces == expected.traces
    log_probabilities = [row[0].log_probability for row in expected.hypotheses]
    assert [row[0].log_probability for row in found.hypotheses] == pytest.approx(log_probabilities, abs=1e-9)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    limits=LIMITS,
    capacity=st.integers(1, 4),
    width=st.integers(2, 4),
    penalty=PENALTIES,
    sharpness=SHARPNESS,
    data=st.data(),
)
def test_one_direction_and_one_word_are_beam_search(seed, limits, capacity, width, penalty, sharpness, data):
    n_best = data.draw(st.integers(1, width))
    model = tiny_interleaved(seed, {"h": 1, "c": 1}, sharpness=sharpness)
    source = random_source(4, 6, seed=seed)
    options = {"width": width, "length_penalty": penalty[0], "strength": penalty[1], "n_best": n_best}
    found = decoder(model, **options).decode(source, limits, capacity=capacity)
    expected = Beam([model.model], RUNNER, BeamOptions(width, *penalty, n_best)).decode(source, limits)
    for one, other in zip(found.hypotheses, expected.hypotheses, strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-9)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    variant=st.sampled_from(EVERY),
    end=ENDS,
    limits=LIMITS,
    capacity=st.integers(1, 4),
    sharpness=SHARPNESS,
    penalty=PENALTIES,
)
def test_greedy_equals_the_slow_twin(seed, variant, end, limits, capacity, sharpness, penalty):
    model = tiny_interleaved(seed, variant, sharpness=sharpness)
    source = random_source(3, 6, seed=seed)
    options = {"end": end, "length_penalty": penalty[0], "strength": penalty[1]}
    decoded = decoder(model, **options).decode(source, limits, capacity=capacity, trace=True)
    step = model.options.step
    for row, ids in enumerate(rows_of(source)):
        tokens, total = twins.greedy(model, ids, limits, end == "paper")
        assert decoded.tokens[row] == tokens
        found = decoded.hypotheses[row][0]
        assert found.log_probability == pytest.approx(total, abs=1e-9)
        steps = len(tokens) // step + 1
        counted = steps * step if end == "paper" else len(tokens) + 1
        assert found.score == pytest.approx(total / float(LengthPenalty(*penalty)(torch.tensor(counted))), abs=1e-9)
        trace = decoded.traces[row]
        assert trace.replay() == tokens
        assert trace.iterations == steps
        assert trace.committed == len(tokens) + 1


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    variant=st.sampled_from([one for one in EVERY if one["h"] < 6]),
    limits=LIMITS,
    capacity=st.integers(1, 3),
    width=st.integers(2, 4),
    sharpness=SHARPNESS,
    ending=ENDING,
    penalty=PENALTIES,
    data=st.data(),
)
def test_beam_equals_the_slow_twin(seed, variant, limits, capacity, width, sharpness, ending, penalty, data):
    n_best = data.draw(st.integers(1, width))
    model = tiny_interleaved(seed, variant, ending, sharpness=sharpness)
    source = random_source(2, 5, seed=seed)
    options = {"width": width, "n_best": n_best, "length_penalty": penalty[0], "strength": penalty[1]}
    decoded = decoder(model, **options).decode(source, limits, capacity=capacity, trace=True)
    for row, ids in enumerate(rows_of(source)):
        expected = twins.beam(model, ids, limits, width, LengthPenalty(*penalty), n_best)
        found = decoded.hypotheses[row]
        assert [h.tokens for h in found] == [tokens for tokens, _ in expected]
        assert [h.score for h in found] == pytest.approx([score for _, score in expected], abs=1e-9)
        assert decoded.traces[row].replay() == expected[0][0]


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10_000),
    variant=st.sampled_from([{"h": 1, "c": 2}, {"h": 2, "c": 1}, {"h": 1, "c": 3}]),
    max_length=st.integers(1, 5),
    width=st.integers(2, 3),
    sharpness=SHARPNESS,
    ending=ENDING,
    penalty=PENALTIES,
)
def test_the_papers_end_equals_its_slow_twin(seed, variant, max_length, width, sharpness, ending, penalty):
    limits = Limits(max_length=max_length, banned=(7,))
    model = tiny_interleaved(seed, variant, ending, sharpness=sharpness, vocabulary=8)
    source = random_source(2, 4, vocabulary=8, seed=seed)
    options = {"end": "paper", "width": width, "n_best": width}
    decoded = decoder(model, **options, length_penalty=penalty[0], strength=penalty[1]).decode(source, limits)
    for row, ids in enumerate(rows_of(source)):
        expected = twins.paper_beam(model, ids, limits, width, LengthPenalty(*penalty), width)
        found = decoded.hypotheses[row]
        assert [h.score for h in found] == pytest.approx([score for _, score in expected], abs=1e-9)
        assert [h.tokens for h in found] == [tokens for tokens, _ in expected]
        assert all(len(h.tokens) >= min(model.options.step, max_length) for h in found)


@settings(max_examples=10)
@given(
    seed=st.integers(0, 1000),
    variant=st.sampled_from(EVERY),
    rows=st.integers(2, 6),
    capacity=st.integers(1, 6),
    width=st.sampled_from([1, 3]),
    end=ENDS,
    dedup=st.sampled_from([0, 2]),
)
def test_a_batch_equals_its_rows_one_by_one(seed, variant, rows, capacity, width, end, dedup):
    search = decoder(tiny_interleaved(seed, variant, sharpness=1.5), width=width, end=end, dedup=dedup)
    source, limits = random_source(rows, 8, seed=seed), Limits(max_ratio=1, max_extra=4)
    together = search.decode(source, limits, capacity=capacity).tokens
    assert together == [search.decode(Source.of([ids]), limits).tokens[0] for ids in rows_of(source)]


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    variant=st.sampled_from(EVERY),
    width=st.sampled_from([1, 3]),
    dedup=st.sampled_from([0, 1, 3]),
)
def test_traces_say_which_step_wrote_which_word(seed, variant, width, dedup):
    model = tiny_interleaved(seed, variant, sharpness=1.5)
    source = random_source(3, 6, seed=seed)
    decoded = decoder(model, width=width, dedup=dedup).decode(source, Limits(max_length=14), capacity=2, trace=True)
    plain = decoder(model, width=width).decode(source, Limits(max_length=14))
    step = model.options.step
    for row, tokens in enumerate(decoded.tokens):
        assert tokens == slowly(plain.tokens[row], dedup)
        trace = decoded.traces[row]
        assert trace.replay() == tokens
        written = [place for event in trace.events for place in event.positions]
        assert sorted(written) == list(range(len(tokens) + 1))  # every position once, EOS behind all
        assert trace.committed == len(tokens) + 1
        if dedup:
            continue
        slots = twins.in_order(list(range(len(tokens))), model.options)  # position -> slot
        for number, event in enumerate(trace.events):
            assert len(event.positions) == step or number >= len(tokens) // step
            for place, token in zip(event.positions, event.ids, strict=True):
                slot = len(tokens) if token == EOS else slots[place]
                if width == 1 or trace.iterations == len(tokens) // step + 1:
                    assert slot // step == number


def forced(model: InterleavedModel, scores: dict[int, float]) -> InterleavedModel:
    """The same model with an output projection that says the same everywhere: these logits, all others far below."""
    layer = model.model.decoder_layers()[-1].feed_forward_residual.norm
    layer.weight.zero_()
    layer.bias.zero_()
    layer.bias[0] = 1.0
    weight = torch.full((model.model.options.vocabulary, 16), 0.0, dtype=torch.float64)
    weight[:, 0] = -50.0
    for token, score in scores.items():
        weight[token, 0] = score
    model.model.output_embedding.weight.copy_(weight)
    return model


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("variant", [{"h": 2, "c": 1}, {"h": 2, "c": 2}, {"h": 4, "c": 1}, {"h": 1, "c": 3}])
def test_empty_and_one_word_outputs_are_possible_and_score_what_they_hold(variant, width):
    source = Source.of([[6, EOS]])
    for eos, minimum in ((3.0, 0), (3.0, 1)):
        model = forced(tiny_interleaved(0, variant, tie="none"), {EOS: eos, 9: 0.0})
        found = decoder(model, width=width, length_penalty="none").decode(source, Limits(min_length=minimum))
        best = found.hypotheses[0][0]
        assert best.tokens == [9] * minimum
        each = torch.tensor([eos, 0.0]).double().log_softmax(0)
        assert best.log_probability == pytest.approx(float(each[0] + minimum * each[1]), abs=1e-9)
        paper = decoder(model, width=width, end="paper", length_penalty="none").decode(source)
        step = model.options.step
        assert len(paper.tokens[0]) == step  # its authors forbid EOS in the first step
        assert paper.hypotheses[0][0].log_probability == pytest.approx(float(step * each[0] + step * each[1]), abs=1e-9)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("end", ["any-direction", "paper"])
def test_limits_hold(width, end):
    for variant in EVERY:
        model = tiny_interleaved(2, variant, sharpness=0.5)
        source = random_source(5, 7, seed=2)
        limits = Limits(max_length=7, min_length=3, banned=(6, 9))
        for tokens in decoder(model, width=width, end=end).decode(source, limits).tokens:
            assert 3 <= len(tokens) <= 7
            assert not {0, 2, 3, 4, 6, 9} & set(tokens)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # some CPUs have no bf16 products and say so once
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("link", [0, 3])
@pytest.mark.parametrize("width", [1, 2])
def test_every_precision_runs(precision, width, link):
    runner = EagerRunner(precision=precision)
    model = runner.place(tiny_interleaved(1, {"h": 2, "c": 2, "link": link}))
    assert next(model.parameters()).dtype == DTYPES[precision]
    search = Interleaved(model.model, model.interleaving, runner, InterleavedOptions(width))
    found = search.decode(random_source(3, 5, seed=1), Limits(max_length=6), trace=True)
    assert [trace.replay() for trace in found.traces] == found.tokens
    assert all(math.isfinite(row[0].score) for row in found.hypotheses)


def test_left_over_values_are_never_seen():
    for width in (1, 2):
        search = decoder(tiny_interleaved(5, {"h": 2}), width=width)
        session = search.start(1, Limits(), 9)
        outputs = []
        for source in (random_source(1, 9, seed=11), Source.of([[6, 3]])):
            session.admit(source)
            while not (finished := session.take_finished()):
                session.advance()
            outputs.append(finished[0].hypotheses[0].tokens)
        assert outputs[1] == search.decode(Source.of([[6, 3]])).tokens[0]


def test_fewer_calls_for_the_same_length():
    """Steps and not words are what is paid for."""
    source = Source.of([[6, 7, 8, EOS]])
    for variant in ({"h": 1, "c": 1}, {"h": 2, "c": 1}, {"h": 2, "c": 2}, {"h": 4, "c": 2}):
        model = tiny_interleaved(0, variant)
        decoded = decoder(model).decode(source, Limits(max_length=16, min_length=16))
        assert decoded.iterations == 16 // model.options.step + 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"width": 0}, "width expects a whole number from 1 to 1000, found 0."),
        ({"width": 2, "n_best": 3}, "n_best expects 1 to width (2), found 3."),
        ({"dedup": -1}, "dedup expects a whole number from 0 to 1000, found -1."),
        ({"h": 4}, "h expects 2, which the model was trained with, found 4."),
        ({"c": 2}, "c expects 1, which the model was trained with, found 2."),
    ],
)
def test_bad_options_are_refused(options, told):
    with pytest.raises(OptionError) as refused:
        decoder(tiny_interleaved(0, {"h": 2, "c": 1}), **options)
    assert told in str(refused.value)


def test_the_signature_names_directions_and_words():
    text = decoder(tiny_interleaved(0, {"h": 2, "c": 2}), width=4).signature
    assert text.startswith("interleaved|width:4|end:any-direction|dedup:0|length_penalty:gnmt|strength:0.6|n_best:1|")
    assert "|h:2|c:2|" in text
    names = {field.name for field in dataclasses.fields(InterleavedOptions)}
    assert all(f"|{name}:" in text for name in names)
