"""Training a one-pass model: what the loss is, what it begins as, and the whole road from a recipe to translations."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import longstride
from longstride.cli.lattice_inspect import constructions_of
from longstride.cli.train import read_recipe
from longstride.contract import EOS, PAD, Batch, OptionError
from longstride.model_folder import ModelFolder
from longstride.nn.losses import Smoothing
from longstride.objectives import OBJECTIVES, Plan
from longstride.recipe import Outcome, run
from longstride.search.lengths import LengthRegression
from longstride.systems.lattice.inspection import recall
from longstride.systems.non_autoregressive.model import OnePass
from longstride.systems.non_autoregressive.objective import NonAutoregressiveObjective
from longstride.tasks.toys import generate
from longstride.text.binarized import BinarizedCorpus
from longstride.training.naming import freeze, warm_start
from tests.decoding.one_pass import slow_canvas, tiny_one_pass
from tests.models import random_source, tiny_model

ROOT = Path(__file__).resolve().parents[2]


def _batch(rows: int = 4, seed: int = 0) -> Batch:
    source, target = random_source(rows, 7, seed=seed), random_source(rows, 9, seed=seed + 100)
    return Batch(source.ids, target.ids, source.lengths, target.lengths, torch.arange(rows))


def _loss(model: OnePass, batch: Batch, smoothing: float = 0.0) -> tuple[float, float, int]:
    objective = NonAutoregressiveObjective(Smoothing(label_smoothing=smoothing))
    prepared = objective.prepare(batch, torch.Generator())
    loss = objective.loss(model, prepared)
    return float(loss.total), float(loss.figures["nll"]), prepared.tokens


@pytest.mark.parametrize("copy", ["none", "uniform", "soft"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_that_of_every_token_on_a_canvas_of_the_right_length(copy, smoothing):
    model, batch = tiny_one_pass(2, copy=copy), _batch()
    expected = smoothed = 0.0
    for row in range(4):
        source = batch.source[row, : batch.source_lengths[row]].tolist()
        target = batch.target[row, : batch.target_lengths[row]]
        scores = slow_canvas(model, source, len(target))
        nll = -scores.gather(1, target[:, None]).sum()
        expected += float(nll)
        smoothed += float((1 - smoothing) * nll - smoothing * scores.mean(dim=-1).sum())
    total, nll, tokens = _loss(model, batch, smoothing)
    assert (total, nll) == (pytest.approx(smoothed), pytest.approx(expected))
    assert tokens == int(batch.target_lengths.sum()) == int((batch.target != PAD).sum())


def test_options_are_checked():
    with pytest.raises(OptionError, match="label_smoothing expects a number from 0 to below 1, found 1"):
        Smoothing(label_smoothing=1.0)


def test_a_shallow_one_begins_as_the_first_layers_of_an_ordinary_transformer():
    """By the names of the weights alone; a frozen encoder then reads without dropout, whatever the mode."""
    base = tiny_model(3)
    model = tiny_one_pass(1, decoder_layers=1, dropout=0.5).requires_grad_(True)
    report = warm_start(model, base.state_dict())
    assert not report.missing
    assert all(name.startswith("decoder.layers.1.") for name in report.unused)
    freeze(model, ["encoder.*", "target_embedding.weight"])
    model.train()
    source = torch.tensor([[5, 6, 7, EOS]])
    assert torch.equal(model.encode_for_training(source, None), base.encode(source, None))
    assert model.dropout.training
    model.requires_grad_(True)
    assert not torch.equal(model.train().encode_for_training(source, None), base.encode(source, None))


def test_lengths_come_with_the_corpus_unless_the_recipe_says_otherwise():
    kind, fitted = OBJECTIVES["non-autoregressive"], LengthRegression(0.9, 1.0, 2.0)
    small = {"width": 16, "feed_forward": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 3}
    model = kind.model(Plan(small, 11, {}, "here, model", fitted))
    assert isinstance(model, OnePass)
    assert (model.options.length, model.options.decoder_layers) == (fitted, 3)
    other = kind.model(Plan({**small, "length": {"slope": 2.0}}, 11, {}, "here, model", fitted))
    assert isinstance(other, OnePass)
    assert other.options.length == LengthRegression(2.0, 0.0, None)
    assert kind.parts(model)["model"].kind == "one-pass"
    with pytest.raises(OptionError, match=r"here, model: 'copy' expects none\|uniform\|soft, found 'hard'"):
        kind.model(Plan({**small, "copy": "hard"}, 11, {}, "here, model"))


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        recipe = read_recipe(ROOT / "recipes" / "toy" / "non-autoregressive.yaml", {})
        return run(recipe, tmp_path_factory.mktemp("one-pass") / "run")
    finally:
        torch.set_num_threads(threads)


def test_a_toy_is_learnt(toy: Outcome) -> None:
    assert toy.result.scores["exact"] >= 0.97
    assert toy.model is not None
    length = ModelFolder(toy.model).parts["model"].options["length"]
    assert length == {"slope": 1.0, "intercept": 0.0, "spread": pytest.approx(0.0)}
    pairs = list(generate("reverse", 100, seed=3, split="test"))
    translator = longstride.load(toy.model, device="cpu")
    assert translator.decoders == ["non-autoregressive"]
    for window in (0, 3):
        found = translator.translate([source for source, _ in pairs], length_window=window, trace=True, batch=50)
        assert sum(one.text == target for one, (_, target) in zip(found, pairs, strict=True)) >= 95
        assert all(one.trace is not None and one.trace.iterations == 1 for one in found)
    empty = translator.translate(["", "a b c"])
    assert [str(one) for one in empty] == ["", "c b a"]


def test_its_words_make_a_lattice(toy: Outcome) -> None:
    assert toy.model is not None
    translator = longstride.load(toy.model, device="cpu")
    pairs = list(generate("reverse", 40, seed=4, split="test"))
    sides = [translator.target_tokenizer.encode_many(list(lines)) for lines in zip(*pairs, strict=True)]
    proposing = constructions_of(translator)
    assert list(proposing) == ["one-pass"]
    found = recall(proposing["one-pass"], BinarizedCorpus.from_pairs(zip(*sides, strict=True)), [1, 8])
    assert found[1] >= 0.95
    assert found[8] >= 0.99


def test_the_weights_are_a_transformers_name_for_name() -> None:
    assert set(tiny_one_pass(copy="soft").state_dict()) == set(tiny_model().state_dict())
