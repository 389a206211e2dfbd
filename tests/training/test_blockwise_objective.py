"""The heads' objective: what each head is to predict, how sub-losses are drawn, and what stays as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import longstride
from longstride.cli.train import read_recipe
from longstride.contract import EOS, PAD, START, Batch, Loss, OptionError
from longstride.contract.options import parse
from longstride.nn.transformer import Transformer
from longstride.objectives import OBJECTIVES, Plan
from longstride.recipe import Outcome, Recipe, run
from longstride.systems.blockwise.model import BlockwiseModel, Heads, HeadsOptions
from longstride.systems.blockwise.objective import BlockwiseObjective, BlockwiseObjectiveOptions, targets_of
from longstride.text.corpus import write_lines
from longstride.training.naming import freeze
from tests.models import tiny_model, tiny_options

LETTERS = "abcdefghijkl"


def a_batch() -> Batch:
    """Targets of 5, 3 and 1 tokens: head 4 finds two in the first alone, and the third has one target in all."""
    source = torch.tensor([[5, 6, EOS], [7, EOS, PAD], [EOS, PAD, PAD]])
    target = torch.tensor([[5, 6, 7, 8, EOS], [9, 10, EOS, PAD, PAD], [EOS, PAD, PAD, PAD, PAD]])
    return Batch(source, target, torch.tensor([3, 2, 1]), torch.tensor([5, 3, 1]), torch.arange(3))


def a_model(k: int = 4, first: str = "identity", seed: int = 0, dropout: float = 0.0, link: int = 0) -> BlockwiseModel:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        base = Transformer(tiny_options(dropout=dropout))
        linked: dict[str, Any] = {"link": link, "vocabulary": base.options.vocabulary} if link else {}
        heads = Heads(HeadsOptions(k, 16, feed_forward=8, first=first, dropout=dropout, **linked))  # type: ignore[arg-type]
        for weight in () if heads.link is None else heads.link.parameters():
            nn.init.normal_(weight)
        nn.init.normal_(heads.down.weight, std=0.3)  # heads that are trained differ
        return BlockwiseModel(base, heads).double().train()


def loss_of(model: nn.Module, draw: int = 0, **options: Any) -> Loss:
    objective = BlockwiseObjective(BlockwiseObjectiveOptions(**options))
    prepared = objective.prepare(a_batch(), torch.Generator().manual_seed(0))
    prepared.tensors["draw"] = torch.tensor(draw)
    return objective.loss(model, prepared)


def by_hand(model: BlockwiseModel, head: int, smoothing: float = 0.0) -> Tensor:
    """Mean cross-entropy of one head over its real targets, from scratch, sentence by sentence."""
    batch, losses = a_batch(), []
    for row in range(3):
        ids = batch.source[row, : batch.source_lengths[row]][None]
        target = batch.target[row, : batch.target_lengths[row]].tolist()
        hidden = model.model.decode(torch.tensor([[2, *target[:-1]]]), model.model.encode(ids, None), None)
        logits = model.model.logits(model.heads.every(hidden))[0, :, head - 1]
        for slot in range(len(target) - head + 1):
            wanted, scores, link = torch.tensor(target[slot + head - 1]), logits[slot], model.heads.link
            if link is not None and head > 1:
                state = model.heads.every(hidden)[0, slot, head - 1]
                scores = scores + link.after.weight @ link.asked(state, torch.tensor(target[slot + head - 2]))
            losses.append(F.cross_entropy(scores, wanted, label_smoothing=smoothing))
    return torch.stack(losses).mean()


def test_a_head_predicts_the_targets_shifted_to_its_place() -> None:
    target = a_batch().target
    assert torch.equal(targets_of(torch.tensor(1), target, 4), target)
    assert targets_of(torch.tensor(2), target, 4).tolist() == [
        [6, 7, 8, EOS, PAD],
        [10, EOS, PAD, PAD, PAD],
        [PAD] * 5,
    ]
    assert targets_of(torch.tensor(4), target, 4).tolist() == [[8, EOS, PAD, PAD, PAD], [PAD] * 5, [PAD] * 5]
    assert targets_of(torch.tensor(8), target, 8).tolist() == [[PAD] * 5] * 3


@pytest.mark.parametrize("first", ["identity", "learned"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_drawn_head_has_its_mean_loss_times_the_batch_tokens(first: str, smoothing: float) -> None:
    model = a_model(first=first)
    for draw in range(8):
        found = loss_of(model, draw, label_smoothing=smoothing).total
        torch.testing.assert_close(found, 9 * by_hand(model, 1 + draw % 4, smoothing))


@pytest.mark.parametrize("link", [0, 3])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("first", ["identity", "learned"])
def test_the_mean_is_over_all_heads_that_can_learn(first: str, frozen: bool, link: int) -> None:
    model = a_model(first=first, link=link)
    if frozen:
        freeze(model, ["model.*"])
    heads = range(2 if frozen and first == "identity" else 1, 5)
    expected = 9 * torch.stack([by_hand(model, head) for head in heads])
    loss = loss_of(model, label_smoothing=0.0, sub_loss="mean")
    torch.testing.assert_close(loss.total, expected.mean())
    torch.testing.assert_close(loss.figures["nll_mean"], expected.mean().detach())
    assert ("nll" in loss.figures) == (1 in heads)
    told = loss_of(model.eval(), label_smoothing=0.0, sub_loss="mean").figures
    torch.testing.assert_close(told["nll"], 9 * by_hand(model, 1).detach())
    model.train()
    drawn = torch.stack([loss_of(model, draw, label_smoothing=0.0).total for draw in range(len(heads))])
    torch.testing.assert_close(drawn, expected)


@pytest.mark.parametrize("frozen", [False, True])
def test_many_draws_average_to_the_mean_in_loss_and_gradient(frozen: bool) -> None:
    model = a_model()
    if frozen:
        freeze(model, ["model.*"])
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    objective = BlockwiseObjective(BlockwiseObjectiveOptions())
    generator = torch.Generator().manual_seed(3)
    draws = [int(objective.prepare(a_batch(), generator).tensors["draw"]) for _ in range(3000)]
    heads = 3 if frozen else 4
    shares = torch.bincount(torch.tensor(draws) % heads, minlength=heads) / len(draws)
    assert shares == pytest.approx(torch.full((heads,), 1 / heads), abs=0.03)

    def gradients(loss: Tensor) -> list[Tensor]:
        found = torch.autograd.grad(loss, trained, allow_unused=True)
        return [torch.zeros_like(w) if g is None else g for w, g in zip(trained, found, strict=True)]

    mean = loss_of(model, sub_loss="mean").total
    each = [loss_of(model, draw).total for draw in range(heads)]
    torch.testing.assert_close(torch.stack(each).mean(), mean)
    of_each = [gradients(loss) for loss in each]
    for place, wanted in enumerate(gradients(mean)):
        torch.testing.assert_close(torch.stack([found[place] for found in of_each]).mean(dim=0), wanted)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("first", ["identity", "learned"])
def test_a_share_of_the_slots_has_the_loss_of_those_slots(first: str, frozen: bool) -> None:
    model, batch = a_model(first=first), a_batch()
    if frozen:
        freeze(model, ["model.*"])
    objective = BlockwiseObjective(BlockwiseObjectiveOptions(sub_loss="mean", slots=0.4, label_smoothing=0.0))
    prepared = objective.prepare(batch, torch.Generator().manual_seed(5))
    chosen = prepared.tensors["chosen"].tolist()
    assert len(set(chosen)) == 6  # of 15, rounded up
    seen = torch.zeros(15, dtype=torch.bool).index_fill(0, torch.tensor(chosen), value=True).view(3, 5)
    everything = BlockwiseObjective(BlockwiseObjectiveOptions(sub_loss="mean", label_smoothing=0.0))
    full = everything.prepare(batch, torch.Generator().manual_seed(5))
    visible = torch.arange(3) < batch.source_lengths[:, None]
    hidden = model(batch.source, visible, F.pad(batch.target[:, :-1], (1, 0), value=START))
    means = []
    for head in range(2 if frozen and first == "identity" else 1, 5):
        target = targets_of(torch.tensor(head), batch.target, 4)
        target = target if head == 1 else target.masked_fill(~seen, PAD)
        logits = model.model.logits(model.heads.every(hidden)[..., head - 1, :])
        losses = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD, reduction="sum")
        means.append(9 * losses / max(1, int((target != PAD).sum())))
    torch.testing.assert_close(objective.loss(model, prepared).total, torch.stack(means).mean())
    torch.testing.assert_close(objective.loss(model.eval(), prepared).total, everything.loss(model, full).total)


@pytest.mark.parametrize("frozen", [False, True])
def test_later_heads_may_count_less(frozen: bool) -> None:
    model = a_model()
    if frozen:
        freeze(model, ["model.*"])
    heads = range(2 if frozen else 1, 5)
    expected = 9 * torch.stack([by_hand(model, head) for head in heads])
    weights = 0.5 ** torch.arange(len(heads))
    found = loss_of(model, label_smoothing=0.0, sub_loss="mean", decay=0.5).total
    torch.testing.assert_close(found, (expected * weights).sum() / weights.sum())
    with pytest.raises(OptionError, match="decay expects a number above 0, at most 1"):
        BlockwiseObjectiveOptions(decay=0.0)


def test_heads_begin_as_the_states_they_read() -> None:
    heads = Heads(HeadsOptions(3, 16, feed_forward=8, first="learned"))
    hidden = torch.randn(2, 5, 16)
    assert torch.equal(heads.eval().every(hidden), hidden[..., None, :].expand(2, 5, 3, 16))


@pytest.mark.parametrize("slots", [0.0, 1.5])
def test_a_share_of_slots_is_checked(slots: float) -> None:
    with pytest.raises(OptionError, match="above 0"):
        BlockwiseObjectiveOptions(sub_loss="mean", slots=slots)
    with pytest.raises(OptionError, match="sub_loss: mean"):
        BlockwiseObjectiveOptions(slots=0.5)


def test_the_draw_comes_with_the_seed() -> None:
    objective = BlockwiseObjective(BlockwiseObjectiveOptions())
    one, same, other = (
        objective.prepare(a_batch(), torch.Generator().manual_seed(seed)).tensors["draw"] for seed in (1, 1, 2)
    )
    assert one == same != other
    assert objective.prepare(a_batch(), torch.Generator()).tokens == 9


def test_validation_takes_the_mean_whatever_was_drawn() -> None:
    model = a_model().eval()
    torch.testing.assert_close(loss_of(model, 1).total, loss_of(model, 2).total)
    assert set(loss_of(model, 1).figures) == {"nll", "nll_mean"}


def test_a_frozen_model_runs_without_dropout_or_gradients() -> None:
    model = a_model(dropout=0.5)
    assert not torch.equal(states(model), states(model))
    freeze(model, ["model.*"])
    assert torch.equal(states(model), states(model))
    assert not states(model).requires_grad
    assert not model.model.training
    assert model.heads.training
    loss_of(model).total.backward()
    assert all(weight.grad is None for weight in model.model.parameters())
    assert all(weight.grad is not None for weight in model.heads.parameters())


def states(model: BlockwiseModel) -> Tensor:
    batch = a_batch()
    return model(batch.source, None, batch.target)  # type: ignore[no-any-return]


def test_a_model_trained_in_part_keeps_its_dropout() -> None:
    model = a_model(dropout=0.5)
    freeze(model, ["model.encoder.*"])
    assert not model.frozen
    assert not torch.equal(states(model), states(model))
    assert model.model.training


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_a_smoothing_that_cannot_be_is_refused(smoothing: float) -> None:
    with pytest.raises(OptionError, match="label_smoothing expects a number from 0 to below 1"):
        BlockwiseObjectiveOptions(label_smoothing=smoothing)


def test_heads_take_their_width_from_the_base() -> None:
    base = {"model": Transformer(tiny_options())}
    kind = OBJECTIVES["blockwise"]
    model = kind.model(Plan({"k": 3}, 11, base, "here"))
    assert model.heads.options == HeadsOptions(3, 16, feed_forward=32)
    assert set(kind.parts(model)) == {"model", "heads"}
    with pytest.raises(OptionError, match="here: width comes with the base"):
        kind.model(Plan({"k": 3, "width": 8}, 11, base, "here"))
    with pytest.raises(OptionError, match="here: expected a base with a Transformer"):
        kind.model(Plan({"k": 3}, 11, {}, "here"))
    with pytest.raises(OptionError, match=r"'k' .int. is required"):
        kind.model(Plan({}, 11, base, "here"))


def test_a_link_takes_its_vocabulary_from_the_base() -> None:
    model = OBJECTIVES["blockwise"].model(Plan({"k": 3, "link": 2}, 11, {"model": Transformer(tiny_options())}, "here"))
    assert model.heads.options == HeadsOptions(3, 16, feed_forward=32, link=2, vocabulary=11)
    assert model.heads.link.before.weight.shape == (11, 2)
    with pytest.raises(OptionError, match="link expects the vocabulary"):
        HeadsOptions(3, 16, link=2)


# --- The whole road, on a task whose next words are easily foreseen -------------------------------------------------


def say_the_alphabet(folder: Path) -> dict[str, str]:
    """A letter so many times -> so many letters of the alphabet from there on."""
    pairs = [
        (" ".join(LETTERS[start] * count), " ".join(LETTERS[(start + n) % len(LETTERS)] for n in range(count)))
        for start in range(len(LETTERS))
        for count in range(4, 11)
    ]
    write_lines(folder / "source.txt", [source for source, _ in pairs])
    write_lines(folder / "target.txt", [target for _, target in pairs])
    return {
        f"{split}_{side}": str(folder / f"{side}.txt") for split in ("train", "valid") for side in ("source", "target")
    }


def train(folder: Path, **settings: Any) -> Outcome:
    data = {"tokenizer_kind": "words", "vocabulary": 40, "batches": {"tokens": 200}, **say_the_alphabet(folder.parent)}
    schedule = {"kind": "linear", "peak": 1e-2, "warmup": 10}
    once = {"steps": 120, "validate_every": 120, "checkpoint_every": 120}
    training = {**once, "schedule": schedule, "clip": 1.0, **settings.pop("training", {})}
    validation = {"metric": "exact", "sentences": 84}
    recipe = {"name": folder.name, "data": data, "training": training, "validation": validation, **settings}
    return run(parse(Recipe, recipe), folder)


def weights(model: Path, part: str) -> dict[str, Tensor]:
    return dict(longstride.load(model, device="cpu").part(part).state_dict())


def test_heads_on_a_frozen_model_say_the_same_in_fewer_steps(tmp_path: Path) -> None:
    shape = {"width": 32, "feed_forward": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "longest": 32}
    base = train(tmp_path / "base", model=shape, objective={"label_smoothing": 0.0})
    heads = train(
        tmp_path / "heads",
        base=str(base.model),
        model={"k": 4, "dropout": 0.0},
        objective={"kind": "blockwise", "label_smoothing": 0.0, "sub_loss": "one"},
        training={"freeze": ["model.*"]},
    )
    assert base.model is not None
    assert heads.model is not None
    before, after = weights(base.model, "model"), weights(heads.model, "model")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)

    lines = (tmp_path / "source.txt").read_text().splitlines()
    wanted = longstride.load(base.model, device="cpu").translate(lines, batch=16)
    translator = longstride.load(heads.model, device="cpu")
    assert [one.text for one in translator.translate(lines, decoder="greedy")] == [one.text for one in wanted]
    found = translator.translate(lines, batch=16, trace=True)
    assert [one.text for one in found] == [one.text for one in wanted]
    verified = [event for one in found if one.trace for event in one.trace.events if event.drafted]
    assert sum(len(event.ids) for event in verified) / len(verified) > 1.5
    assert translator.decoders == ["blockwise", "greedy", "beam"]
    last = json.loads((tmp_path / "heads" / "metrics.jsonl").read_text().splitlines()[-2])
    assert {"nll", "nll_mean", "ppl"} <= set(last["figures"])


@pytest.mark.parametrize("freeze", [["model.*"], []], ids=["frozen", "trained on"])
def test_heads_of_another_model_leave_a_frozen_one_alone(tmp_path: Path, freeze: list[str]) -> None:
    shape = {"width": 8, "feed_forward": 8, "heads": 1, "encoder_layers": 1, "decoder_layers": 1, "longest": 32}
    heads = {"model": {"k": 2, "feed_forward": 8, "first": "learned"}, "objective": {"kind": "blockwise"}}
    still = {"steps": 2, "freeze": freeze, "schedule": {"peak": 1e-9}}
    base = train(tmp_path / "base", model=shape, training={"steps": 2}).model
    another = train(tmp_path / "another", model=shape, training={"steps": 2, "seed": 2}).model
    begun = train(tmp_path / "begun", base=str(another), training={**still, "freeze": []}, **heads).model
    found = train(tmp_path / "found", base=str(base), warm_start=str(begun), training=still, **heads).model
    assert base is not None
    assert begun is not None
    assert found is not None
    torch.testing.assert_close(weights(found, "heads"), weights(begun, "heads"))
    torch.testing.assert_close(weights(found, "model"), weights(base if freeze else begun, "model"))


def test_heads_ask_for_a_base(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="expects `base`"):
        train(tmp_path / "heads", model={"k": 4}, objective={"kind": "blockwise"})


def test_the_toy_is_trained_on_what_its_base_was() -> None:
    """Other lines would give the words other ids, and the base could not be built on."""
    toys = Path(__file__).resolve().parents[2] / "recipes" / "toy"
    assert read_recipe(toys / "blockwise.yaml", {}).data == read_recipe(toys / "reverse.yaml", {}).data


@pytest.mark.parametrize(
    ("first", "expected"), [("identity", ("blockwise", "greedy", "beam")), ("learned", ("blockwise",))]
)
def test_a_learned_first_head_leaves_no_other_decoder(first, expected):
    """Its base alone is no model any more: greedy search without head 1 would be nonsense."""
    heads = Heads(HeadsOptions(k=3, width=16, feed_forward=16, first=first))
    assert OBJECTIVES["blockwise"].offered(BlockwiseModel(tiny_model(0, torch.float32), heads)) == expected
