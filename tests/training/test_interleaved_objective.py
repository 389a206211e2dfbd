"""Interleaved training: the ordinary loss on reordered targets, warm starts, students, the road to a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import longstride
from longstride.contract import EOS, PAD, START, OptionError
from longstride.contract.options import parse
from longstride.nn.losses import Smoothing
from longstride.nn.transformer import Transformer
from longstride.objectives import OBJECTIVES, Plan
from longstride.recipe import Recipe, run
from longstride.runtime.eager import EagerRunner
from longstride.systems.autoregressive.objective import AutoregressiveObjective
from longstride.systems.interleaved.model import InterleavedModel, Interleaving
from longstride.systems.interleaved.objective import InterleavedObjective, _apart, likelihood
from longstride.systems.interleaved.options import InterleavingOptions
from longstride.training.metrics import Silent
from tests.decoding.interleaved import EVERY, in_order, tiny_interleaved
from tests.training.test_drafter_objective import make_batch

LENGTHS = st.lists(st.integers(1, 19), min_size=1, max_size=4)
RNG = torch.Generator()


def objective(smoothing: float = 0.0) -> InterleavedObjective:
    return InterleavedObjective(Smoothing(smoothing))


@settings(max_examples=25)
@given(lengths=LENGTHS, variant=st.sampled_from(EVERY), seed=st.integers(0, 1000))
def test_the_loss_is_the_sum_over_words_in_the_order_of_writing(lengths, variant, seed):
    """Row by row, unpadded, with the order found by gathering directions instead of by arithmetic."""
    model = tiny_interleaved(seed, variant)
    batch = make_batch(lengths, [length + 1 for length in lengths], seed)
    prepared = objective().prepare(batch, RNG)
    found = objective().loss(model, prepared)
    expected = 0.0
    step = model.options.step
    for row, length in enumerate(lengths):
        words = batch.target[row, : length - 1].tolist()
        slots = in_order(list(range(len(words))), model.options)  # position -> slot
        written = [word for _, word in sorted(zip(slots, words, strict=True))] + [EOS]
        inputs = ([START] * step + written)[: len(written)]
        memory = model.model.encode(batch.source[row : row + 1, : batch.source_lengths[row]], None)
        # The last step is whole when it is decoded: what it reads is there, whatever it then predicts.
        more = -len(inputs) % step
        inputs = ([START] * step + written)[: len(inputs) + more]
        inputs += [PAD] * (len(written) + more - len(inputs))
        hidden = model.decode(torch.tensor([inputs]), memory, None)[0]
        for slot, word in enumerate(written):
            logits = model.model.logits(hidden[slot])
            if (link := model.interleaving.link) is not None and slot % step >= model.options.h:
                weighed = link.before.weight[written[slot - model.options.h]] * (1 + link.gate.weight @ hidden[slot])
                logits = logits + link.after.weight @ weighed
            expected -= float(logits.log_softmax(-1)[word])
    assert float(found.total) == pytest.approx(expected, abs=1e-8)
    assert float(found.figures["nll"]) == pytest.approx(expected, abs=1e-8)
    assert prepared.tokens == sum(lengths)


@settings(max_examples=15)
@given(lengths=LENGTHS, seed=st.integers(0, 1000), smoothing=st.sampled_from([0.0, 0.1]))
def test_one_direction_and_one_word_have_the_ordinary_loss(lengths, seed, smoothing):
    model = tiny_interleaved(seed, {"h": 1, "c": 1})
    batch = make_batch(lengths, lengths, seed)
    ordinary = AutoregressiveObjective(Smoothing(smoothing))
    expected = ordinary.loss(model.model, ordinary.prepare(batch, RNG))
    found = objective(smoothing).loss(model, objective(smoothing).prepare(batch, RNG))
    assert float(found.total) == pytest.approx(float(expected.total), abs=1e-8)
    assert float(found.figures["nll"]) == pytest.approx(float(expected.figures["nll"]), abs=1e-8)


@pytest.mark.parametrize("variant", EVERY, ids=str)
def test_every_weight_is_trained(variant):
    model = tiny_interleaved(0, variant).requires_grad_(True)
    batch = make_batch([9, 14], [5, 5])
    objective(0.1).loss(model, objective(0.1).prepare(batch, RNG)).total.backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in model.parameters())


def test_smoothing_is_checked():
    with pytest.raises(OptionError, match="label_smoothing expects a number from 0 to below 1, found 1"):
        Smoothing(1.0)


def plan(settings: dict[str, Any]) -> InterleavedModel:
    small = {"width": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    return OBJECTIVES["interleaved"].model(Plan({**small, **settings}, 11, {}, "here, model"))


def test_the_registry_builds_what_the_recipe_says():
    kind = OBJECTIVES["interleaved"]
    model = plan({"interleaving": {"h": "4", "c": "2"}})
    assert (model.options.h, model.options.c, model.options.step, model.options.width) == (4, 2, 8, 16)
    assert set(kind.parts(model)) == {"model", "interleaving"}
    assert kind.offered(model) == ("interleaved",)
    assert plan({}).options.h == 2
    assert kind.offered(plan({"interleaving": {"h": 1}})) == ("interleaved", "greedy", "beam")


def test_a_link_is_as_large_as_the_vocabulary():
    link = plan({"interleaving": {"c": 2, "link": "3"}}).interleaving.link
    assert link is not None
    assert list(link.before.weight.shape) == [11, 3]
    assert plan({"interleaving": {"c": 2}}).interleaving.link is None


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"link": 8}, "here, model, interleaving: link expects c 2 or more, found 1: no two words"),
        ({"h": 3}, "here, model, interleaving: h expects 1, 2 or an even number of directions, found 3."),
        ({"c": 0}, "here, model, interleaving: c expects a whole number from 1 to 64"),
        ({"k": 2}, "there is no option 'k'"),
        ({"width": 16}, "interleaving expects options such as h and c, not the width"),
        (2, "interleaving expects options such as h and c, not the width, found 2."),
    ],
)
def test_bad_recipes_are_refused(settings, told):
    with pytest.raises(OptionError) as refused:
        plan({"interleaving": settings})
    assert told in str(refused.value)


def test_a_norm_of_embeddings_that_no_slot_would_read_is_refused():
    with pytest.raises(OptionError, match="embedding_norm: false, found true"):
        plan({"embedding_norm": True, "interleaving": {"h": 1}})


def recipe(name: str, model: dict[str, Any], kind: str, **more: Any) -> Recipe:
    settings = {
        "name": name,
        "data": {
            "task": "copy",
            "pairs": 60,
            "valid_pairs": 5,
            "tokenizer_kind": "words",
            "vocabulary": 40,
            "batches": {"tokens": 128},
            **more.pop("data", {}),
        },
        "model": {"width": 8, "feed_forward": 8, "heads": 1, "encoder_layers": 1, "decoder_layers": 2, **model},
        "objective": {"kind": kind},
        "training": {"steps": 2, **more.pop("training", {})},
        "validation": {"metric": "exact", "sentences": 5},
        **more,
    }
    return parse(Recipe, settings)


def test_a_warm_start_takes_an_ordinary_transformers_weights(tmp_path: Path) -> None:
    teacher = run(recipe("teacher", {}, "autoregressive"), tmp_path / "teacher")
    assert teacher.model is not None
    still = {"steps": 1, "schedule": {"kind": "linear", "peak": 1e-30, "warmup": 1}}  # changes no weight
    tokenizer = {"tokenizer": str(teacher.model / "tokenizer.model")}

    def begun(name: str, **model: Any) -> Path:
        chosen = recipe(name, model, "interleaved", warm_start=str(teacher.model), training=still, data=tokenizer)
        outcome = run(chosen, tmp_path / name)
        assert outcome.model is not None
        return outcome.model

    lines = ["a b c", "d", "e f g h"]
    expected = longstride.load(teacher.model, device="cpu").translate(lines)
    same = longstride.load(begun("same", interleaving={"h": 1, "c": 1}), device="cpu")
    assert same.decoders == ["interleaved", "greedy", "beam"]
    for decoder in ("interleaved", "greedy"):
        assert [one.tokens for one in same.translate(lines, decoder)] == [one.tokens for one in expected]

    given = longstride.load(teacher.model, device="cpu").part("model").state_dict()
    for name, changes in {
        "ib": {"interleaving": {"h": 2, "c": 2}},
        "im": {"interleaving": {"h": 4, "start": "learned"}},
        "student": {"decoder_layers": 1},
    }.items():
        folder = begun(name, **changes)
        translator = longstride.load(folder, device="cpu")
        assert translator.decoders == ["interleaved"]
        found = translator.part("model").state_dict()
        assert all(torch.equal(weight, given[key]) for key, weight in found.items())
        one = translator.translate(lines, width=3, trace=True, max_length=9)
        assert [line.trace.replay() for line in one if line.trace] == [list(line.tokens) for line in one]
        assert {key for key in given if key.startswith("decoder.layers.1.")} <= set(found) or name == "student"
    with pytest.raises(OptionError, match="h expects 2, which the model was trained with, found 4"):
        longstride.load(tmp_path / "ib" / "model", device="cpu").decoder("interleaved", h=4)


def test_validation_tells_how_far_apart_the_slots_of_the_first_step_are() -> None:
    """A start symbol that drowns positions makes them alike; with vectors of their own they are not."""
    batch = make_batch([5, 9], [6, 3], 1)

    def apart(start: str, loudness: float) -> float:
        model = tiny_interleaved(3, {"h": 2, "c": 2, "start": start}).eval()
        with torch.no_grad():
            model.model.target_embedding.weight[START] *= loudness
        figures = objective().loss(model, objective().prepare(batch, RNG)).figures
        return float(figures["apart"] / batch.target_lengths.sum())

    assert apart("symbol", 1e6) < 1e-3 < apart("symbol", 1) < 1
    assert min(apart("learned", 1e6), apart("zeros", 1e6)) > 3e-3
    model = tiny_interleaved(3, {"h": 2, "c": 2}).train()
    assert set(objective().loss(model, objective().prepare(batch, RNG)).figures) == {"nll"}


def apart_by_layer(model: Transformer, memory: Tensor, start: str, scale: float) -> list[float]:
    """Of the four slots of a first step, at the decoder's input and after each layer."""
    torch.manual_seed(0)
    width, states = model.options.width, []
    whole = InterleavedModel(
        model, Interleaving(InterleavingOptions(width, 4, start=start, direction_scale=scale))
    ).eval()
    layers = list(model.decoder.layers)
    hooks = [layer.register_forward_pre_hook(lambda layer, given: states.append(given[0])) for layer in layers]
    hooks.append(layers[-1].register_forward_hook(lambda layer, given, found: states.append(found)))
    with torch.no_grad():
        whole.decode(torch.full((1, 4), START), memory, None)
    for hook in hooks:
        hook.remove()
    return [float(_apart(state)) for state in states]


def test_directions_as_loud_as_words_tell_slots_apart() -> None:
    """A trained model (its input and six layers) that four directions begin as, loud by the square root of its width.

    Drawn at d^-0.5 and added as they are, directions are lost beside a start symbol as loud as words: 0.2, 0.01, 0.001.
    """
    translator = longstride.load("bundled", device="cpu", precision="fp32")
    model = translator.part("model")
    assert isinstance(model, Transformer)
    memory = model.encode(torch.tensor(translator.encode(["We vote on it tomorrow."])), None)
    as_words = model.options.width**0.5
    quiet, loud = (apart_by_layer(model, memory, "symbol", scale) for scale in (1.0, as_words))
    assert quiet[:3] == pytest.approx([0.2, 0.014, 0.001], abs=0.006)
    assert loud[:3] == pytest.approx([0.82, 0.56, 0.23], abs=0.05)
    assert all(one > 20 * other for one, other in zip(loud[1:], quiet[1:], strict=True))
    # Zero vectors instead of the symbol help as much again.
    assert apart_by_layer(model, memory, "zeros", as_words)[-1] > 2 * loud[-1]


def test_new_models_are_loud_and_begin_with_zeros_and_old_folders_stay_as_they_were() -> None:
    assert plan({"interleaving": {"h": 4}}).options.direction_scale == 4.0  # the square root of 16
    assert plan({"interleaving": {"h": 4, "direction_scale": 1}}).options.direction_scale == 1.0
    assert plan({"interleaving": {"c": 2}}).options.start == "zeros"
    assert plan({"interleaving": {"c": 2, "start": "symbol"}}).options.start == "symbol"
    assert plan({"interleaving": {"autoregressive": True}}).options.start == "symbol"
    old = parse(InterleavingOptions, {"width": 16, "h": 4, "start": "symbol"})
    assert (old.direction_scale, old.start) == (1.0, "symbol")


def test_the_scale_multiplies_direction_embeddings() -> None:
    models = [tiny_interleaved(3, {"h": 4, "direction_scale": scale}) for scale in (1.0, 3.0)]
    slots = torch.arange(6)
    one, three = (model.places(slots) for model in models)
    own = models[0].interleaving.directions
    assert own is not None
    torch.testing.assert_close(three - one, 2 * own(slots % 4))


@pytest.mark.parametrize("start", ["symbol", "zeros", "learned"])
def test_a_warm_start_warns_of_the_start_symbol(tmp_path: Path, start: str) -> None:
    teacher = run(recipe("teacher", {}, "autoregressive"), tmp_path / "teacher").model
    assert teacher is not None
    said: list[str] = []

    class Told(Silent):
        def message(self, text: str) -> None:
            said.append(text)

    data = {"tokenizer": str(teacher / "tokenizer.model")}
    chosen = recipe(start, {"interleaving": {"start": start}}, "interleaved", warm_start=str(teacher), data=data)
    outcome = run(chosen, tmp_path / start, reporter=Told())
    assert any("interleaving.start is `symbol`" in text for text in said) == (start == "symbol")
    assert {"apart", "nll_first", "nll"} <= set(outcome.result.figures)


def test_validation_tells_the_loss_of_the_first_words() -> None:
    batch = make_batch([5, 9], [6, 2], 1)
    model = tiny_interleaved(3, {"h": 2, "c": 2}).eval()
    prepared = objective().prepare(batch, RNG)
    figures = objective().loss(model, prepared).figures
    found = likelihood(model, EagerRunner("cpu", "fp64")).log_probabilities(batch)
    lengths = batch.target_lengths.tolist()
    first = [-float(row[: min(4, length)].mean()) * length for row, length in zip(found, lengths, strict=True)]
    assert float(figures["nll_first"]) == pytest.approx(sum(first), rel=1e-5)


def test_slots_that_are_alike_may_be_given_vectors_of_their_own(tmp_path: Path) -> None:
    """A model that starts from symbols is where one with learned starts may begin."""
    first = run(recipe("first", {"interleaving": {"c": 2, "start": "symbol"}}, "interleaved"), tmp_path / "first").model
    assert first is not None
    still = {"steps": 1, "schedule": {"kind": "linear", "peak": 1e-30, "warmup": 1}}  # changes no weight
    begun = {"training": still, "data": {"tokenizer": str(first / "tokenizer.model")}, "warm_start": str(first)}
    learned = {"interleaving": {"c": 2, "start": "learned"}}
    then = run(recipe("then", learned, "interleaved", **begun), tmp_path / "then").model
    assert then is not None
    old, new = (longstride.load(folder, device="cpu") for folder in (first, then))
    assert new.part("interleaving").state_dict()["starts"].shape[0] == 4
    for name, weight in old.part("model").state_dict().items():
        assert torch.equal(new.part("model").state_dict()[name], weight)


def test_a_model_without_a_link_is_where_one_with_it_may_start(tmp_path: Path) -> None:
    """The same outputs from a folder to the next, as long as nothing is learnt; and what was learnt is kept."""
    still = {"steps": 1, "schedule": {"kind": "linear", "peak": 1e-30, "warmup": 1}}  # changes no weight
    plain = run(recipe("plain", {"interleaving": {"c": 2}}, "interleaved"), tmp_path / "plain").model
    assert plain is not None
    assert not any("link" in name for name in longstride.load(plain, device="cpu").part("interleaving").state_dict())
    begun = {"training": still, "data": {"tokenizer": str(plain / "tokenizer.model")}}
    linked = {"interleaving": {"c": 2, "link": 3}}
    lines = ["a b c", "d", "e f g h i j"]

    def outputs(folder: Path) -> list[Any]:
        translator = longstride.load(folder, device="cpu")
        return [one.tokens for width in (1, 3) for one in translator.translate(lines, width=width, max_length=9)]

    first = run(recipe("first", linked, "interleaved", warm_start=str(plain), **begun), tmp_path / "first").model
    assert first is not None
    assert outputs(first) == outputs(plain)
    learning = {**begun, "training": {"steps": 3, "schedule": {"kind": "linear", "peak": 0.1, "warmup": 1}}}
    learnt = run(recipe("learnt", linked, "interleaved", warm_start=str(first), **learning), tmp_path / "learnt").model
    assert learnt is not None
    own = longstride.load(learnt, device="cpu").part("interleaving").state_dict()
    assert own["link.after.weight"].any()
    again = run(recipe("again", linked, "interleaved", warm_start=str(learnt), **begun), tmp_path / "again").model
    assert again is not None
    found = longstride.load(again, device="cpu").part("interleaving").state_dict()
    assert all(torch.equal(found[name], weight) for name, weight in own.items())
    assert outputs(again) == outputs(learnt)
